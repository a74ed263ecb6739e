package lock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// onlyBatches is a sampler that wants no lock, but every renewal call.
type onlyBatches struct{}

func (onlyBatches) Description() string { return "onlyBatches" }

func (onlyBatches) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == telemetry.SpanBatch.Name {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

// A renewal call has a span where one of its leases shows the renewal, or one of them failed: the others would be traces of one span
// to which nothing leads.
func TestBatchSpansAreOfWhatIsShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		sampler sdktrace.Sampler
		policy  lock.RenewalSpans
		well    int // spans of ten renewals
	}{
		{"all", sdktrace.AlwaysSample(), lock.RenewalSpansAll, 10},
		{"thinned", sdktrace.AlwaysSample(), lock.RenewalSpansThinned, 8},
		{"failures", sdktrace.AlwaysSample(), lock.RenewalSpansFailures, 0},
		{"off", sdktrace.AlwaysSample(), lock.RenewalSpansOff, 0},
		{"not sampled", sdktrace.ParentBased(onlyBatches{}), lock.RenewalSpansAll, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScope(t), redistest.StartFake(t)
				s.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans), sdktrace.WithSampler(c.sampler))
				client := open(t, srv.Client(t), lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter),
					lock.WithLease(30*time.Second), lock.WithRenewalSpans(c.policy))
				l := try(t, client.Mutex("job"))
				for end := time.Now().Add(10 * time.Minute); s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") < 10; {
					if time.Now().After(end) {
						t.Fatal("it isn't renewed")
					}
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if n := len(s.spansNamed(telemetry.SpanBatch.Name)); n != c.well {
					t.Errorf("%d spans of ten renewals, want %d", n, c.well)
				}
				s.spans.Reset()
				srv.SetRefusal(func(cmd string, _ ...string) string {
					if strings.HasPrefix(cmd, "EVAL") {
						return "LOADING Redis is loading the dataset in memory"
					}
					return ""
				})
				time.Sleep(11 * time.Second)
				srv.SetRefusal(nil)
				synctest.Wait()
				failed := s.spansNamed(telemetry.SpanBatch.Name)
				if len(failed) == 0 || attrsOf(failed[0])["lockdog.outcome"] != "error" {
					t.Errorf("spans %v of renewals that failed", failed)
				}
				free(t, l)
			})
		})
	}
}
