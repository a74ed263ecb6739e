//go:build e2e

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	// deadlockPause is the time from the start of examples/deadlock until its services wait for each other.
	deadlockPause = 2 * time.Second
	// deadlockSeen is how long after that everything shows it.
	deadlockSeen = 3 * time.Second
)

// deadlocked are the services of examples/deadlock, and the group of the lock that each waits for.
var deadlocked = map[string]string{"orders": "stock", "warehouse": "invoice", "billing": "customer"}

// tangle is the three services, each a process, and what watches them.
type tangle struct {
	redis      *redistest.Server
	jaeger     *jaeger
	prometheus *prometheus
	programs   map[string]*instance
	began      time.Time // when the last of them was started
}

func startTangle(t *testing.T, args ...string) *tangle {
	t.Helper()
	s := &tangle{redis: redistest.Start(t), programs: map[string]*instance{}}
	bin := build(t, "examples", "deadlock")
	s.jaeger = startJaeger(t, "jaeger-deadlock")
	addrs, jobs := freeAddrs(t, len(deadlocked)), map[string][]string{}
	i := 0
	for service := range deadlocked {
		jobs[service] = []string{addrs[i]}
		i++
	}
	s.prometheus = startPrometheus(t, scrapeEvery, jobs, shippedRules(t))
	for service, addr := range jobs {
		env := append(plainEnv(), "OTEL_BSP_SCHEDULE_DELAY=200") // ms; a span that has ended is to be seen soon
		s.began = time.Now()
		s.programs[service] = &instance{url: "http://" + addr[0], program: launch(t, "deadlock-"+service, env, bin, append([]string{
			"-service", service, "-redis", s.redis.Addr(), "-otlp", "http://" + s.jaeger.otlp, "-addr", addr[0], "-pause", deadlockPause.String(),
		}, args...)...)}
	}
	return s
}

// each asks the same of each service, of all at a time: their debug pages take a second to be sure of a deadlock.
func (s *tangle) each(ask func(service string, i *instance) error) error {
	errs := make(chan error, len(s.programs))
	for service, i := range s.programs {
		go func() {
			err := ask(service, i)
			if err != nil {
				err = fmt.Errorf("%s: %w", service, err)
			}
			errs <- err
		}()
	}
	var all error
	for range s.programs {
		all = errors.Join(all, <-errs)
	}
	return all
}

// logged is the log of a service as far as it is written.
func (i *instance) logged(t *testing.T, message string) (found []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(i.log)
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		var rec map[string]any
		if json.Unmarshal([]byte(line), &rec) == nil && rec["msg"] == message {
			found = append(found, rec)
		}
	}
	return found
}

// inMetrics asks for the counter of a service, at its own endpoint.
func (i *instance) inMetrics(t *testing.T, group string) error {
	t.Helper()
	body, err := get(t, i.url+"/metrics")
	if err != nil {
		return err
	}
	line := regexp.MustCompile(telemetry.MetricDeadlocks.Prometheus + `\{[^}]*lockdog_group="` + group + `"[^}]*\} 1\b`).Find(body)
	return unless(line != nil, "no deadlock is counted in %s", group)
}

// inJaeger asks for the span of the deadlock, in a trace of the service.
func (s *tangle) inJaeger(t *testing.T, service string) error {
	t.Helper()
	name := telemetry.SpanDeadlock.Name + " " + deadlocked[service]
	found, err := s.jaeger.find(t, service, name)
	if err != nil {
		return err
	}
	if len(found) == 0 || len(found[0].all(name)) == 0 {
		return fmt.Errorf("no span %q", name)
	}
	sp := found[0].all(name)[0]
	cycle := sp.Tags.get(string(telemetry.KeyDeadlockCycle))
	for _, part := range []string{"stock:7", "invoice:3", "customer:9", "orders:", "warehouse:", "billing:"} {
		if !strings.Contains(cycle, part) {
			return fmt.Errorf("%v has no %s in its cycle: %s", sp, part, cycle)
		}
	}
	n := strings.Count(cycle, "(trace ") // it leads to the others
	return unless(n == len(deadlocked), "%v has %d traces in its cycle: %s", sp, n, cycle)
}

// onPage asks a service's debug page, as JSON.
func (i *instance) onPage(t *testing.T) error {
	t.Helper()
	body, err := get(t, i.url+"/debug/locks?format=json")
	if err != nil {
		return err
	}
	var page struct {
		Graph struct {
			Error  string
			Cycles [][]struct{ Name string }
		}
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return err
	}
	return unless(len(page.Graph.Cycles) == 1 && len(page.Graph.Cycles[0]) == 3, "cycles %v, %s", page.Graph.Cycles, page.Graph.Error)
}

// TestDeadlockIsSeen: three processes that take five locks wait for each other, and everything shows that within three seconds.
func TestDeadlockIsSeen(t *testing.T) {
	command := build(t, "cmd", "lockdog")
	s := startTangle(t)
	kept := keptWaiting(t)
	closed := s.began.Add(deadlockPause)
	<-time.After(time.Until(closed))
	checks := map[string]func() error{
		"log": func() error {
			return s.each(func(_ string, i *instance) error {
				return unless(len(i.logged(t, telemetry.LogDeadlock.Message)) > 0, "nothing is logged")
			})
		},
		"metric": func() error {
			return s.each(func(service string, i *instance) error { return i.inMetrics(t, deadlocked[service]) })
		},
		"Jaeger": func() error {
			return s.each(func(service string, _ *instance) error { return s.inJaeger(t, service) })
		},
		"debug page": func() error {
			return s.each(func(_ string, i *instance) error { return i.onPage(t) })
		},
		"lockdog graph": func() error {
			out, err := exec.CommandContext(t.Context(), command, "graph", "--url", "redis://"+s.redis.Addr()).CombinedOutput()
			var exit *exec.ExitError
			return unless(errors.As(err, &exit) && exit.ExitCode() == 1 && strings.Contains(string(out), "invoice:3"), "%v: %s", err, out)
		},
	}
	var mu sync.Mutex
	took, last := map[string]time.Duration{}, map[string]error{}
	var all sync.WaitGroup
	for what, check := range checks {
		all.Go(func() {
			for time.Since(closed) < 3*deadlockSeen {
				err := check()
				mu.Lock()
				last[what] = err
				if err == nil {
					took[what] = time.Since(closed)
				}
				mu.Unlock()
				if err == nil {
					return
				}
				<-time.After(100 * time.Millisecond)
			}
		})
	}
	all.Wait()
	late := time.Duration(kept.Load()) // a machine that keeps this program waiting did so with each of the steps that lead there
	for what := range checks {
		switch d, ok := took[what]; {
		case !ok:
			t.Errorf("%s doesn't show it: %v", what, last[what])
		case d > deadlockSeen+20*late:
			t.Errorf("%s shows it after %v; the machine kept this program waiting for %v at most", what, d, late)
		}
	}
	until(t, spanLimit, "LockdogDeadlock fires for each service", func() error {
		firing, err := s.prometheus.alerts(t)
		if err != nil {
			return err
		}
		return s.each(func(service string, _ *instance) error {
			return unless(slices.ContainsFunc(firing, func(a alert) bool {
				return a.Labels["alertname"] == "LockdogDeadlock" && a.Labels["job"] == service && a.State == "firing"
			}), "%v", firing)
		})
	})
	for _, i := range s.programs {
		if n := len(i.logged(t, telemetry.LogDeadlock.Message)); n != 1 {
			t.Errorf("%s tells of it %d times", i.name, n)
		}
	}
	fmt.Printf("e2e: a deadlock of three processes is seen after, counted from the wait that closes it: %v\n", took)
}

// TestDeadlockIsBroken: with WithDeadlockBreaking one of the three gives up, and all get done. Then an exemplar of the slow acquire leads to its trace, which
// has the deadlock as an event, and from there a link to the trace of the holder, in another service.
func TestDeadlockIsBroken(t *testing.T) {
	s := startTangle(t, "-break")
	until(t, deadlockPause+deadlockSeen+startLimit, "all are done", func() error {
		return s.each(func(_ string, i *instance) error { return unless(len(i.logged(t, "done")) == 1, "is not done") })
	})
	broken := 0
	for service, i := range s.programs {
		for _, rec := range i.logged(t, telemetry.LogDeadlock.Message) {
			if rec["broken"] == true {
				broken++
				until(t, spanLimit, "the failed acquire of "+service+" has the event", func() error {
					return s.hasEvent(t, fmt.Sprint(rec["trace_id"]), fmt.Sprint(rec["span_id"]))
				})
			}
		}
	}
	if broken != 1 {
		t.Errorf("%d waits were ended", broken)
	}
	until(t, 2*spanLimit, "an exemplar leads to an acquire that waited, and that to the trace of the holder", func() error { return s.exemplarLeads(t) })
}

// hasEvent looks for the event of the deadlock on a span.
func (s *tangle) hasEvent(t *testing.T, traceID, spanID string) error {
	t.Helper()
	tr, err := s.jaeger.trace(t, traceID)
	if err != nil {
		return err
	}
	sp := tr.byID(spanID)
	if sp == nil {
		return fmt.Errorf("no span %s in %s", spanID, tr)
	}
	for _, event := range sp.Logs {
		if event.Fields.get("event") == telemetry.EventDeadlock.Name && event.Fields.get(string(telemetry.KeyDeadlockBroken)) == "true" {
			return nil
		}
	}
	return fmt.Errorf("%v has the events %v", sp, sp.Logs)
}

// exemplarLeads goes from an exemplar of a wait of more than a second to the acquire, and from there to the acquire of the holder.
func (s *tangle) exemplarLeads(t *testing.T) error {
	t.Helper()
	all, err := s.prometheus.exemplars(t, telemetry.MetricAcquireDuration.Prometheus+"_bucket")
	if err != nil {
		return err
	}
	err = errors.New("there is none")
	for _, e := range all {
		if took, failed := strconv.ParseFloat(e.Value, 64); failed != nil || took < 1 {
			continue
		}
		var tr, holder *jaegerTrace
		if tr, err = s.jaeger.trace(t, e.Labels["trace_id"]); err != nil {
			continue
		}
		acquire := tr.byID(e.Labels["span_id"])
		if acquire == nil || len(acquire.links()) == 0 {
			err = fmt.Errorf("%s: no acquire with a link", tr)
			continue
		}
		link := acquire.links()[0]
		if holder, err = s.jaeger.trace(t, link.TraceID); err != nil {
			continue
		}
		of := holder.byID(link.SpanID)
		if of == nil || of.OperationName != acquire.OperationName || holder.TraceID == tr.TraceID ||
			holder.Processes[of.ProcessID].ServiceName == tr.Processes[acquire.ProcessID].ServiceName {
			t.Errorf("%v links to %v of %s", acquire, of, holder)
		}
		return nil
	}
	return err
}
