package telemetry_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/lockdog/lockdog/telemetry"
)

// Each span with status error says of which type.
func TestErrorsHaveTypes(t *testing.T) {
	b := newBench(t)
	types := map[string][]string{}
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.Fail(telemetry.AcquireError, errBoom)
	h := b.grant()
	for _, o := range []telemetry.Outcome{telemetry.RenewalMissing, telemetry.RenewalTaken} {
		ev := renewed(time.Now())
		ev.Outcome, ev.Err = o, errors.New("gone")
		h.Renewal(ev)
	}
	h.Lost(telemetry.LossStalled, nil, nil)
	_, rel := b.StartRelease(b.caller, h)
	rel.End(telemetry.ReleaseError, false, errBoom)
	h.End(telemetry.EndLost)
	for _, s := range b.spans.GetSpans() {
		if s.Status.Code == codes.Error {
			types[s.Name] = append(types[s.Name], attrs(s)["error.type"])
		}
	}
	for name, want := range map[string][]string{
		"acquire orders": {"_OTHER"}, "renew orders": {"missing", "taken"}, "lost orders": {"stalled"}, "release orders": {"_OTHER"},
	} {
		if !slices.Equal(types[name], want) {
			t.Errorf("%s: error.type %q, want %q", name, types[name], want)
		}
	}
}
