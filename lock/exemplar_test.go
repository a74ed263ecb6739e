package lock_test

import (
	"context"
	"encoding/hex"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
	"github.com/lockdog/lockdog/telemetry"
)

// From a slow bucket of lockdog.acquire.duration its exemplar leads to the acquire that waited, and the link of that to the acquire of the holder.
func TestExemplarLeadsToTheHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		srv := locktest.New(t, lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter))
		holder, waiter := srv.NewClient(lock.WithClientID("holder")), srv.NewClient(lock.WithClientID("waiter"))
		request, span := s.tracer.Tracer("test").Start(t.Context(), "the holder's request")
		l, err := holder.Mutex("order:42").Lock(request)
		if err != nil {
			t.Fatal(err)
		}
		theirs, slow := s.tracer.Tracer("test").Start(t.Context(), "the slow request")
		waits := begin(theirs, waiter.Mutex("order:42"))
		time.Sleep(4 * time.Second)
		free(t, l)
		free(t, granted(t, waits))
		span.End()
		slow.End()

		var trace, id string
		for _, e := range s.exemplars(t, telemetry.MetricAcquireDuration) {
			if e.Value >= 4 {
				trace, id = hex.EncodeToString(e.TraceID), hex.EncodeToString(e.SpanID)
			}
		}
		if trace != slow.SpanContext().TraceID().String() {
			t.Fatalf("the exemplar is of trace %q", trace)
		}
		linked := false
		for _, acquire := range s.spansNamed("acquire order") {
			if acquire.SpanContext.SpanID().String() != id {
				continue
			}
			for _, link := range acquire.Links {
				for _, other := range s.spansNamed("acquire order") {
					linked = linked || other.SpanContext.SpanID() == link.SpanContext.SpanID() &&
						other.SpanContext.TraceID() == span.SpanContext().TraceID() && attrsOf(other)[telemetry.KeyOwner] == l.Owner()
				}
			}
		}
		if !linked {
			t.Errorf("no span %s that links to the holder's acquire", id)
		}
	})
}

// exemplars are those of a histogram.
func (s *scope) exemplars(t *testing.T, m telemetry.Metric) (all []metricdata.Exemplar[float64]) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, sm := range rm.ScopeMetrics {
		for _, got := range sm.Metrics {
			if got.Name != m.Name {
				continue
			}
			for _, p := range got.Data.(metricdata.Histogram[float64]).DataPoints {
				all = append(all, p.Exemplars...)
			}
		}
	}
	return all
}
