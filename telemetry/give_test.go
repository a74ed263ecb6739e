package telemetry_test

import (
	"testing"

	"github.com/lockdog/lockdog/telemetry"
)

// What nobody holds is taken and given without a grant: it has the spans and counters of that, and none of a hold.
func TestPassAndGive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.Lock("pool:1", "unleased_semaphore", "", 0)
	_, a := b.StartAcquire(b.caller, &pool, 0)
	a.BlockedBy("", "") // nobody knows who has the permits
	a.WaitStart()
	a.Pass()
	a.Pass()
	a.Fail(telemetry.AcquireError, errBoom) // comes too late
	for _, err := range []error{nil, errBoom} {
		_, rel := b.StartGive(b.caller, &pool)
		outcome := telemetry.ReleaseReleased
		if err != nil {
			rel.Error(telemetry.ErrorNetwork)
			outcome = telemetry.ReleaseError
		}
		rel.End(outcome, false, err)
		rel.End(outcome, false, err)
	}

	m := b.metrics()
	for name, want := range map[string]map[string]float64{
		telemetry.MetricAcquisitions.Name: {"lockdog.group=pool,lockdog.outcome=acquired": 1, "lockdog.group=pool,lockdog.outcome=error": 0},
		telemetry.MetricReleases.Name:     {"lockdog.group=pool,lockdog.outcome=released": 1, "lockdog.group=pool,lockdog.outcome=error": 1},
		telemetry.MetricWaiting.Name:      {"lockdog.group=pool": 0},
		telemetry.MetricHeld.Name:         {"lockdog.group=pool": 0},
	} {
		got := points(m[name])
		for set, value := range want {
			if p, ok := got[set]; !ok || p.value != value {
				t.Errorf("%s{%s}: %v, want %v", name, set, got[set].value, value)
			}
		}
	}
	acquire := attrs(b.one("acquire pool"))
	if acquire[telemetry.KeyKind] != "unleased_semaphore" || acquire[telemetry.KeyOutcome] != "acquired" {
		t.Errorf("acquire has %v", acquire)
	}
	released := b.named("release pool")
	if len(released) != 2 || attrs(released[1])[telemetry.KeyErrorType] != "network" || released[1].Status.Description != "boom" {
		t.Fatalf("releases: %v", released)
	}
	for key := range attrs(released[0]) {
		if key == telemetry.KeyToken || key == telemetry.KeyOwner {
			t.Errorf("a release of nothing that was held has %s", key)
		}
	}
	for _, key := range []string{string(telemetry.KeyLease), string(telemetry.KeyBlockedBy)} {
		for _, kv := range b.one("acquire pool").Attributes {
			if string(kv.Key) == key {
				t.Errorf("acquire has %s", key)
			}
		}
	}
	if n := len(b.spans.GetSpans()); n != 3 {
		t.Errorf("%d spans, want 3", n)
	}
}
