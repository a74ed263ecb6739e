//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// patience is what scrapes, evaluations and a busy machine may add to the time in which an alert is due.
const patience = 10 * time.Second

// expected are the alerts that should fire when Redis is away, and when they are due. The leases of orders are so short that a scrape
// may miss the last third of them, and its workers may release some when Redis goes, so that fewer than three are lost.
var expected = []struct {
	alert    string
	services []string
	due      func(lease time.Duration) time.Duration
}{
	{"LockdogRenewalFailures", []string{orders, patient}, func(lease time.Duration) time.Duration { return lease / 2 }},
	{"LockdogLeaseExpiring", []string{patient}, func(lease time.Duration) time.Duration { return lease * 7 / 10 }},
	{"LockdogFewLocksLost", []string{orders, patient}, func(lease time.Duration) time.Duration { return lease }},
	{"LockdogLockLost", []string{patient}, func(lease time.Duration) time.Duration { return lease }},
}

// testAlerts cuts Redis off and waits for the alerts. Then it lets Redis come back.
func testAlerts(t *testing.T, s *stack, facts *report) {
	until(t, 30*time.Second, "all is well", func() error { return s.well(t) })
	if early := s.firing(t); len(early) > 0 {
		t.Fatalf("alerts while all is well: %v", early)
	}
	reporter(t, 3*reportHold, shortLease/2, strings.TrimPrefix(s.a.url, "http://"), strings.TrimPrefix(s.b.url, "http://")) // its leases end before the reports do
	began := time.Now()
	s.cut(t)
	fired := map[string]time.Duration{}
	until(t, leases[patient]+patience+5*time.Second, "the alerts fire for the services", func() error {
		for _, a := range s.firing(t) {
			key := a.Labels["alertname"] + " " + a.Labels["job"]
			if _, known := fired[key]; !known {
				fired[key] = time.Since(began)
			}
		}
		for _, p := range expected {
			for _, service := range p.services {
				if _, ok := fired[p.alert+" "+service]; !ok {
					return fmt.Errorf("fired so far: %v", fired)
				}
			}
		}
		return nil
	})
	facts.add("Redis is cut off; Prometheus scrapes and evaluates every %v", scrapeEvery)
	for _, p := range expected {
		for _, service := range p.services {
			after, lease := fired[p.alert+" "+service], leases[service]
			facts.add("%s fires after %.1f s, with leases of %v", p.alert, after.Seconds(), lease)
			if limit := p.due(lease) + patience; after > limit {
				t.Errorf("%s fires after %v, want %v at the latest", p.alert, after, limit)
			}
		}
	}

	s.cable.Accept(t)
	back := time.Now()
	until(t, leases[patient]+30*time.Second, "all is well again", func() error { return s.well(t) })
	facts.add("Redis back: all locks are held again after %v", since(back))
}

// firing are our alerts that fire.
func (s *stack) firing(t *testing.T) (all []alert) {
	t.Helper()
	found, err := s.prometheus.alerts(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		if a.State == "firing" && strings.HasPrefix(a.Labels["alertname"], "Lockdog") {
			all = append(all, a)
		}
	}
	return all
}

// well tells, by what Prometheus knows, whether every worker's lock is held, none fails to renew, and requests get theirs.
func (s *stack) well(t *testing.T) error {
	t.Helper()
	for query, want := range map[string]float64{
		fmt.Sprintf(`sum(%s{lockdog_group="report", job=%q})`, telemetry.MetricHeld.Prometheus, orders):  workers,
		fmt.Sprintf(`sum(%s{lockdog_group="report", job=%q})`, telemetry.MetricHeld.Prometheus, patient): workers,
		fmt.Sprintf(`sum(%s)`, telemetry.MetricFailing.Prometheus):                                       0,
	} {
		if n, err := s.prometheus.now(t, query); err != nil || n != want {
			return fmt.Errorf("%s is %v, want %v (%w)", query, n, want, err)
		}
	}
	return post(t, s.a.url+"/orders/e2e-2?work=0s", newTraceID())
}
