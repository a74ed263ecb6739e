//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/dashboards"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// fault is what befalls a fleet, and what comes of it.
type fault struct {
	name       string
	begin, end func(*testing.T, *fleet) // nil: nothing to do
	// lasts is how long it lasts at least. It also lasts until the alerts have fired, unless they can't before it ends.
	lasts time.Duration
	blind bool // they can't
	// alerts are those that fire, each with what its section in the runbook says of this fault.
	alerts map[string]string
	// may are those that fire or not.
	may []string
}

// soakFaults is the table. A fleet holds ten leases or so at any time, eight of them shards, which are of one group; see command fleet.
func soakFaults() []fault {
	outage := map[string]string{
		"LockdogLeaseExpiring":      "all are Redis",
		"LockdogLockLost":           "Redis didn't answer",
		"LockdogFewLocksLost":       "given up in time (`unreachable`",
		"LockdogRenewalFailures":    "make Redis answer",
		"LockdogRenewalErrorBudget": "Failed are the outcomes error",
		"LockdogLeaseMarginLow":     "It counts failed attempts",
		"LockdogAcquireFailing":     "make Redis answer",
		"LockdogAcquireTimeouts":    "`error`, Redis failed",
		"LockdogPubSubDown":         "has had no subscription for release messages",
	}
	return []fault{
		{name: "none, beside all others"},
		{
			name: "Redis refuses connections",
			begin: func(t *testing.T, f *fleet) {
				f.cables[0].Refuse(t)
				f.cables[0].CutAll()
			},
			end:    func(t *testing.T, f *fleet) { f.cables[0].Accept(t) },
			alerts: outage,
		},
		{
			name: "Redis accepts and hangs",
			begin: func(_ *testing.T, f *fleet) {
				f.cables[0].SetRule(func(redistest.Chunk) redistest.Verdict { return redistest.Drop })
			},
			end: func(_ *testing.T, f *fleet) {
				f.cables[0].SetRule(nil)
				f.cables[0].CutAll() // what was dropped stays dropped
			},
			alerts: outage,
		},
		{
			name: "one node of a Quorum is down",
			begin: func(t *testing.T, f *fleet) {
				f.cables[nodes].Refuse(t)
				f.cables[nodes].CutAll()
			},
			end:   func(t *testing.T, f *fleet) { f.cables[nodes].Accept(t) },
			lasts: 2 * soakLease,
			alerts: map[string]string{
				"LockdogMembersLost":        "the majority has them",
				"LockdogRenewalFailures":    "one of a Quorum's nodes",
				"LockdogLeaseMarginLow":     "one node",
				"LockdogRenewalErrorBudget": "one node",
			},
			may: []string{"LockdogPubSubDown"}, // if somebody waits for long enough
		},
		{
			name: "FLUSHALL",
			begin: func(t *testing.T, f *fleet) {
				if err := f.redis.Client(t).FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			},
			alerts: map[string]string{"LockdogLockLost": "flushed"},
		},
		{
			name: "a holder is killed",
			begin: func(t *testing.T, f *fleet) {
				f.victim = f.holder(t)
				if err := f.processes[f.victim].Kill(); err != nil {
					t.Fatal(err)
				}
			},
			end:    func(t *testing.T, f *fleet) { f.start(t, f.victim) },
			alerts: map[string]string{"LockdogHolderVanished": "The holder was killed"},
		},
		{
			name: "a holder stands still for longer than a lease",
			begin: func(t *testing.T, f *fleet) {
				f.victim = f.holder(t)
				if err := f.processes[f.victim].Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			},
			end: func(t *testing.T, f *fleet) {
				if err := f.processes[f.victim].Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			},
			lasts: soakLease + 5*time.Second,
			blind: true, // what it lost it counts when it goes on
			alerts: map[string]string{
				"LockdogLockLost":       "stopped, or without CPU time",
				"LockdogFewLocksLost":   "`stalled`",
				"LockdogHolderVanished": "stopped",
			},
			// A scrape may be answered before the watchdog has looked at its leases again. The windows of these rules, a tenth of those shipped, are
			// shorter than the stop: what increase() is asked of may have no earlier sample in them.
			// The lock of a Quorum loses its members one after the other: the first may be counted before the lock is lost.
			may: []string{"LockdogWatchdogStalled", "LockdogLeaseExpiring", "LockdogRenewalFailures", "LockdogLeaseMarginLow", "LockdogMembersLost"},
		},
		{
			name:   "subscriptions are refused",
			begin:  func(t *testing.T, f *fleet) { f.acl(t, "-subscribe") },
			end:    func(t *testing.T, f *fleet) { f.acl(t, "+subscribe") },
			alerts: map[string]string{"LockdogPubSubDown": "`acl`: `ACL LOG`"},
		},
		{
			name: "ForceUnlock of a held lock",
			begin: func(t *testing.T, f *fleet) {
				c, err := lock.New(f.redis.Client(t), lock.WithKeyPrefix(f.job+":"))
				if err != nil {
					t.Fatal(err)
				}
				ok, err := c.Mutex("shard:a-0").ForceUnlock(t.Context())
				if err = errors.Join(err, c.Close(t.Context())); err != nil || !ok {
					t.Fatalf("ForceUnlock: %v, %v", ok, err)
				}
			},
		},
	}
}

// acl changes what the processes may do, and ends the subscriptions that they have.
func (f *fleet) acl(t *testing.T, rule string) {
	t.Helper()
	admin := f.redis.Client(t)
	for _, command := range [][]any{{"ACL", "SETUSER", "default", rule}, {"CLIENT", "KILL", "TYPE", "pubsub"}} {
		if err := admin.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

var reportAge = regexp.MustCompile(`lockdog_hold_oldest_age_seconds\{[^}]*lockdog_group="report"[^}]*\} (\S+)`)

// holder is a process that holds a report, for which another one waits, and will do so for some seconds.
func (f *fleet) holder(t *testing.T) (process int) {
	t.Helper()
	return reporter(t, 4*soakLease, soakLease/3, f.addrs...)
}

// reporter waits until a process has begun its reports less than age ago.
func reporter(t *testing.T, limit, age time.Duration, addrs ...string) (process int) {
	t.Helper()
	until(t, limit, "a process has just begun its reports", func() error {
		for i, addr := range addrs {
			metrics, err := get(t, "http://"+addr+"/metrics")
			if err != nil {
				return err
			}
			found := reportAge.FindSubmatch(metrics)
			if found == nil {
				return fmt.Errorf("%s has no reports", addr)
			}
			if oldest, err := strconv.ParseFloat(string(found[1]), 64); err == nil && oldest > 0 && oldest < age.Seconds() {
				process = i
				return nil
			}
		}
		return errors.New("none")
	})
	return process
}

// faultLimit is for how long the alerts of a fault are waited for, and then for their end.
const faultLimit = 100 * time.Second

// testFaults lets every fleet have its fault, waits for the alerts, ends the faults and waits until the alerts are gone.
func testFaults(t *testing.T, s *soak, facts *report) {
	began := time.Now()
	begun := map[string]time.Time{}
	defer func() { s.judge(t, began, begun) }() // also when it takes too long
	for _, f := range s.fleets {
		if f.begin != nil {
			f.begin(t, f)
		}
		begun[f.job] = time.Now()
	}
	going := slices.Clone(s.fleets)
	over := time.Now().Add(faultLimit)
	until(t, 2*faultLimit, "the faults end", func() error {
		fired := s.fired(t, began)
		going = slices.DeleteFunc(going, func(f *fleet) bool {
			lasted := time.Since(begun[f.job])
			if lasted < f.lasts || !f.blind && len(f.missing(fired[f.job])) > 0 && time.Now().Before(over) {
				return false
			}
			if f.end != nil {
				f.end(t, f)
				facts.add("%s, for %.0f s", f.name, lasted.Seconds())
			}
			return true
		})
		return unless(len(going) == 0, "%d go on", len(going))
	})
	until(t, faultLimit, "the alerts have fired, and go when the faults have", func() error {
		now, err := s.prometheus.alerts(t)
		now = slices.DeleteFunc(now, func(a alert) bool {
			return a.Labels["alertname"] == "LockdogRenewalErrorBudget" // for six hours, which are more than half an hour here
		})
		fired := s.fired(t, began)
		for _, f := range s.fleets {
			if missing := f.missing(fired[f.job]); len(missing) > 0 {
				err = errors.Join(err, fmt.Errorf("%s: not yet: %v", f.name, missing))
			}
		}
		return errors.Join(err, unless(len(now) == 0, "%v", now))
	})
	for _, q := range dashboardQueries(t) {
		if err := s.prometheus.hasData(t, q.expr); err != nil {
			t.Errorf("%s: after all faults: %v", q.where, err)
		}
	}
}

// judge prints the table of the alerts that fired, and compares it with the faults' and with the runbook.
func (s *soak) judge(t *testing.T, began time.Time, begun map[string]time.Time) {
	t.Helper()
	table := "| fault | alert | first after | section of the runbook |\n|---|---|---|---|\n"
	fired := s.fired(t, began)
	sections := runbookSections(t)
	for _, f := range s.fleets {
		for name, words := range f.alerts {
			if !strings.Contains(sections[name], words) {
				t.Errorf("%s: the runbook says nothing like %q of %s:\n%s", f.name, words, name, sections[name])
			}
		}
		if missing := f.missing(fired[f.job]); len(missing) > 0 {
			t.Errorf("%s: didn't fire: %v", f.name, missing)
		}
		first := map[string]episode{}
		for _, a := range fired[f.job] {
			name := a.Labels["alertname"]
			if f.alerts[name] == "" && !slices.Contains(f.may, name) {
				t.Errorf("%s: %s fired at %v: %v", f.name, name, a.first.Format(time.TimeOnly), a.Labels)
			}
			if known, ok := first[name]; !ok || a.first.Before(known.first) {
				first[name] = a
			}
		}
		for _, a := range slices.SortedFunc(maps.Values(first), func(a, b episode) int { return a.first.Compare(b.first) }) {
			name := a.Labels["alertname"]
			table += fmt.Sprintf("| %s | %s | %.0f s | #%s |\n", f.name, name, a.first.Sub(begun[f.job]).Seconds(), strings.ToLower(name))
		}
		if len(first) == 0 {
			table += fmt.Sprintf("| %s | none | | |\n", f.name)
		}
	}
	fmt.Printf("e2e: alerts by fault; leases of %v, rules %d times as fast as shipped\n%s", soakLease, faster, table)
}

// fired are by job the alerts that have fired since then.
func (s *soak) fired(t *testing.T, from time.Time) map[string][]episode {
	t.Helper()
	all := map[string][]episode{}
	for _, a := range s.prometheus.alerted(t, from) {
		if a.State == "firing" {
			all[a.Labels["job"]] = append(all[a.Labels["job"]], a)
		}
	}
	return all
}

// missing are the alerts of the fault that haven't fired.
func (f *fleet) missing(fired []episode) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.alerts)), func(name string) bool {
		return slices.ContainsFunc(fired, func(a episode) bool { return a.Labels["alertname"] == name })
	})
}

// runbookSections are those of the runbook, by title.
func runbookSections(t *testing.T) map[string]string {
	t.Helper()
	text, err := fs.ReadFile(dashboards.FS, "RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	return sections
}
