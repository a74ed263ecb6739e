//go:build e2e

package e2e_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

const (
	// soakLease is what the thresholds of the rules are made for. A shorter one would take a busy machine for a fault: half of a lease is
	// used up without a renewal when one is late by a sixth of it.
	soakLease = lock.DefaultLease
	// soakScrape is how often Prometheus looks.
	soakScrape = 2 * time.Second
	// soakFor is how long all is well: at ten times the speed the rules see twenty minutes, more than any of them waits.
	soakFor = 2 * time.Minute
	// nodes are those of the Quorums.
	nodes = 3
)

// TestSoak has a fleet for each fault: processes of the command fleet and a Redis of their own. First all is well for minutes, while the
// processes are started anew one by one: no alert may so much as be pending. Then each fleet gets its fault, all at the same time; one
// gets none. The alerts of each are to be exactly those of the table, and go when the fault does.
func TestSoak(t *testing.T) {
	began := time.Now()
	s := startSoak(t)
	kept := keptWaiting(t)
	var facts report
	defer func() {
		facts.add("all of it took %v; the machine kept this program waiting for %v at most", since(began), time.Duration(kept.Load()))
		fmt.Print(facts)
	}()
	facts.add("%d fleets of %d processes are up after %v", len(s.fleets), len(s.fleets[0].processes), since(began))
	testWell(t, s, kept, &facts) // no subtests: what they start would end with them
	testFaults(t, s, &facts)
}

// keptWaiting is the longest time for which the machine gave this process no turn, in nanoseconds. Where it is seconds, what the alerts say
// of leases that are renewed late is true.
func keptWaiting(t *testing.T) *atomic.Int64 {
	t.Helper()
	const often = 50 * time.Millisecond
	var worst atomic.Int64
	go func() {
		tick := time.NewTicker(often)
		defer tick.Stop()
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-tick.C:
				worst.Store(max(worst.Load(), int64(time.Since(last)-often)))
			case <-t.Context().Done():
				return
			}
		}
	}()
	return &worst
}

// soak is everything that runs.
type soak struct {
	prometheus *prometheus
	fleets     []*fleet
}

// fleet is who gets a fault together: the processes of a job, with what is between them and Redis.
type fleet struct {
	fault
	job       string
	bin       string
	redis     *redistest.Server
	cables    []*redistest.Proxy // to redis, and to each of the nodes
	addrs     []string           // of the processes' metrics
	processes []*program
	victim    int // the process that the fault is about
}

// startSoak starts Prometheus first, so that it sees the processes start.
func startSoak(t *testing.T) *soak {
	t.Helper()
	var servers [nodes]*redistest.Server // keys have the job before them
	for i := range servers {
		servers[i] = redistest.Start(t)
	}
	bin := build(t, "internal", "e2e", "fleet")
	faults := soakFaults()
	addrs := freeAddrs(t, 2*len(faults)+1)
	exporter := addrs[2*len(faults)]
	jobs := map[string][]string{"redis": {exporter}}
	s := &soak{}
	for i, fault := range faults {
		f := &fleet{fault: fault, job: fmt.Sprintf("fleet-%d", i), bin: bin, redis: redistest.Start(t), addrs: addrs[2*i : 2*i+2]}
		f.cables = append(f.cables, redistest.NewProxy(t, f.redis.Addr()))
		for _, node := range servers {
			f.cables = append(f.cables, redistest.NewProxy(t, node.Addr()))
		}
		jobs[f.job] = f.addrs
		s.fleets = append(s.fleets, f)
	}
	startExporter(t, s.fleets[0].redis, exporter)
	s.prometheus = startPrometheus(t, soakScrape, jobs, fasterRules(t))
	for _, f := range s.fleets {
		f.processes = make([]*program, len(f.addrs))
		for i := range f.processes {
			f.start(t, i)
		}
	}
	return s
}

// start starts process i, as at first or anew.
func (f *fleet) start(t *testing.T, i int) {
	t.Helper()
	servers := make([]string, len(f.cables))
	for i, cable := range f.cables {
		servers[i] = cable.Addr()
	}
	id := string(rune('a' + i))
	f.processes[i] = launch(t, f.job+"-"+id, append(plainEnv(), "OTEL_TRACES_EXPORTER=none"), f.bin,
		"-addr", f.addrs[i], "-service", f.job, "-id", id, "-redis", strings.Join(servers, ","), "-lease", soakLease.String())
	f.processes[i].ready(t, "http://"+f.addrs[i]+"/metrics")
}

// testWell restarts every process, one after the other, over soakFor.
func testWell(t *testing.T, s *soak, kept *atomic.Int64, facts *report) {
	began := time.Now()
	n := 0
	for i := range s.fleets[0].processes {
		for _, f := range s.fleets {
			n++
			due := began.Add(soakFor * time.Duration(n) / time.Duration(len(s.fleets)*len(f.processes)+2))
			until(t, soakFor, "the next restart is due", func() error { return unless(time.Now().After(due), "at %v", due) })
			if state := f.processes[i].terminate(t); !state.Success() {
				t.Errorf("%s: %v", f.processes[i].name, state)
			}
			f.start(t, i)
		}
	}
	until(t, soakFor, "it has been going on for long enough", func() error {
		return unless(time.Since(began) > soakFor, "%v", time.Since(began))
	})
	for _, a := range s.prometheus.alerted(t, s.prometheus.began) {
		if a.State == "pending" {
			switch name := a.Labels["alertname"]; {
			case name == "LockdogPubSubDown" && a.last.Sub(a.first) <= soakScrape:
				continue // a process that has just started was scraped before its first subscription stood
			case name == "LockdogWatchdogLagging" && time.Duration(kept.Load()) > 500*time.Millisecond:
				continue // it is true: the windows are short, and the threshold is what it is in minutes
			}
		}
		t.Errorf("%s was %s at %v, while all was well: %v", a.Labels["alertname"], a.State, a.first.Format(time.TimeOnly), a.Labels)
	}
	asked := 0
	for _, q := range dashboardQueries(t) {
		if slices.ContainsFunc(ofFaults, func(end string) bool { return strings.HasSuffix(q.where, end) }) {
			continue
		}
		asked++
		if err := s.prometheus.hasData(t, q.expr); err != nil {
			t.Errorf("%s: %v", q.where, err)
		}
	}
	facts.add("all was well for %v, with %d restarts; %d queries of the dashboards were to give data; %d rules are healthy",
		since(began), n, asked, s.prometheus.healthyRules(t))
}

// ofFaults are the queries without data while all is well: the annotations of losses, the bars of lost members, and the line of calls to
// Redis that failed.
var ofFaults = []string{" / Losses", ofMembers, " / Batch duration / C"}

// episode is when an alert was in a state.
type episode struct {
	alert
	first, last time.Time
}

// alerted are the alerts that were pending or firing at any time from then on.
func (p *prometheus) alerted(t *testing.T, from time.Time) (all []episode) {
	t.Helper()
	found, err := getJSON[struct{ Result []series }](t, p.url+"/api/v1/query_range", url.Values{
		"query": {`ALERTS{alertname=~"Lockdog.+"}`}, "start": {timestamp(from)}, "end": {timestamp(time.Now())}, "step": {soakScrape.String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range found.Result {
		at := func(i int) time.Time { return time.UnixMilli(int64(one.Values[i][0].(float64) * 1000)) }
		all = append(all, episode{alert{one.Metric, one.Metric["alertstate"]}, at(0), at(len(one.Values) - 1)})
	}
	return all
}
