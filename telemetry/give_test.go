package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockdog/lockdog/telemetry"
)

// Permits without a lease are taken and given back without a grant. Both are recorded as an acquire and a release, but
// there is no hold.
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

	b.want(1, telemetry.MetricAcquisitions, "lockdog.group=pool", "lockdog.outcome=acquired")
	b.want(0, telemetry.MetricAcquisitions, "lockdog.group=pool", "lockdog.outcome=error")
	b.want(1, telemetry.MetricReleases, "lockdog.group=pool", "lockdog.outcome=released")
	b.want(1, telemetry.MetricReleases, "lockdog.group=pool", "lockdog.outcome=error")
	b.want(0, telemetry.MetricWaiting, "lockdog.group=pool")
	b.want(0, telemetry.MetricHeld, "lockdog.group=pool")
	acquire, released := attrs(b.one("acquire pool")), b.named("release pool")
	wantIn(t, "acquire", acquire, map[attribute.Key]string{
		"lockdog.kind": "unleased_semaphore", "lockdog.outcome": "acquired",
	})
	if len(released) != 2 || attrs(released[1])[telemetry.KeyErrorType] != "network" || released[1].Status.Description != "boom" {
		t.Fatalf("releases: %v", released)
	}
	for _, key := range []attribute.Key{
		telemetry.KeyToken, telemetry.KeyOwner, telemetry.KeyLease, telemetry.KeyBlockedBy,
	} {
		if acquire[key] != "" || attrs(released[0])[key] != "" {
			t.Errorf("what was never held has %s", key)
		}
	}
	if n := len(b.spans.GetSpans()); n != 3 {
		t.Errorf("%d spans, want 3", n)
	}
}
