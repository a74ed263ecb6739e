package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// ordinals gives the ordinals of the renewals that have a span.
func (b *bench) ordinals() []int {
	var all []int
	for _, s := range b.named("renew orders") {
		n, err := strconv.Atoi(attrs(s)["lockdog.renewal.ordinal"])
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

func TestRenewalSpanPolicies(t *testing.T) {
	// 200 renewals: the 50th comes late, the 60th takes two seconds, and the 70th succeeds only at the second try.
	run := func(b *bench, policy telemetry.RenewalSpans) []int {
		b.lock = b.Lock("orders:42", "mutex", "", policy)
		h := b.grant()
		start := time.Now()
		for i := 1; i <= 200; i++ {
			ev := renewed(start)
			switch i {
			case 50:
				ev.Elapsed = 25 * time.Second
			case 60:
				ev.End = start.Add(2 * time.Second)
			case 70:
				h.Renewal(failed())
			}
			h.Renewal(ev)
		}
		return b.ordinals()
	}
	var seventyTwice []int
	for i := 1; i <= 200; i++ {
		seventyTwice = append(seventyTwice, i)
	}
	seventyTwice = slices.Insert(seventyTwice, 70, 70)
	thinned := []int{1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 50, 60, 64, 70, 128}
	for _, c := range []struct {
		policy telemetry.RenewalSpans
		want   []int
	}{
		{0, seventyTwice},
		{telemetry.RenewalSpansAll, seventyTwice},
		{telemetry.RenewalSpansThinned, thinned},
		{telemetry.RenewalSpansFailures, []int{70}},
		{telemetry.RenewalSpansOff, nil},
	} {
		t.Run(fmt.Sprint(c.policy), func(t *testing.T) {
			b := newBench(t)
			if got := run(b, c.policy); !slices.Equal(got, c.want) {
				t.Errorf("spans of %v\nwant %v", got, c.want)
			}
			b.want(200, telemetry.MetricRenewals, "lockdog.group=orders", "lockdog.outcome=renewed")
			b.want(1, telemetry.MetricRenewals, "lockdog.group=orders", "lockdog.outcome=error")
		})
	}
}

// Each span with status error says of which type, and why. Renewals that lose the lock are shown under each policy but Off.
func TestErrorsHaveTypes(t *testing.T) {
	b := newBench(t)
	b.lock = b.Lock("orders:42", "mutex", "", telemetry.RenewalSpansFailures)
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.Fail(telemetry.AcquireError, errBoom)
	h := b.grant()
	for _, o := range []telemetry.Outcome{telemetry.RenewalMissing, telemetry.RenewalTaken} {
		ev := renewed(time.Now())
		ev.Outcome, ev.Err = o, errors.New("gone")
		h.Renewal(ev)
	}
	if recs := b.records.all(t, telemetry.LogFail); len(recs) != 0 {
		t.Error("logged here and again as a loss")
	}
	h.Lost(telemetry.LossStalled, nil, nil)
	_, rel := b.StartRelease(b.caller, h)
	rel.End(telemetry.ReleaseError, false, errBoom)
	h.End(telemetry.EndLost)
	failed := map[string][]string{}
	for _, s := range b.spans.GetSpans() {
		if s.Status.Code == codes.Error {
			failed[s.Name] = append(failed[s.Name], attrs(s)["error.type"]+": "+s.Status.Description)
		}
	}
	for name, want := range map[string][]string{
		"acquire orders": {"_OTHER: boom"}, "renew orders": {"missing: gone", "taken: gone"}, "lost orders": {"stalled: lock lost: stalled"},
		"release orders": {"_OTHER: boom"},
	} {
		if !slices.Equal(failed[name], want) {
			t.Errorf("%s: %q, want %q", name, failed[name], want)
		}
	}
}

// TestNextTrace: 360 renewals to a trace, then a new one that links to the grant.
func TestNextTrace(t *testing.T) {
	b := newBench(t)
	h := b.grant()
	grant := b.one("held orders")
	start := time.Now()
	for range 800 {
		h.Renewal(renewed(start))
	}
	held := b.named("held orders")
	if len(held) != 3 {
		t.Fatalf("%d traces, want 3", len(held))
	}
	perTrace := map[trace.TraceID]int{}
	for _, s := range b.named("renew orders") {
		perTrace[s.SpanContext.TraceID()]++
		if !slices.ContainsFunc(held, func(p tracetest.SpanStub) bool { return p.SpanContext.SpanID() == s.Parent.SpanID() }) {
			t.Fatal("a renewal without its held span")
		}
	}
	for i, want := range []int{360, 360, 80} {
		root := held[i]
		if got := perTrace[root.SpanContext.TraceID()]; got != want {
			t.Errorf("trace %d has %d renewals, want %d", i, got, want)
		}
		if i == 0 {
			continue
		}
		if root.Parent.IsValid() || root.EndTime.Sub(root.StartTime) != time.Nanosecond || attrs(root)["lockdog.renewal.ordinal"] != strconv.Itoa(360*i+1) ||
			attrs(root)["lockdog.name"] != "orders:42" {
			t.Errorf("root %+v", root)
		}
		wantLink(t, root, grant.SpanContext, "held")
	}

	// What happens now is beside the latest renewals; the hold belongs to the grant.
	h.Lost(telemetry.LossMissing, nil, nil)
	h.Canceled(telemetry.CancelContext, nil)
	h.End(telemetry.EndLost)
	if b.one("lost orders").Parent.SpanID() != held[2].SpanContext.SpanID() || b.one("cancel orders").Parent.SpanID() != held[2].SpanContext.SpanID() {
		t.Error("the loss is not beside the latest renewals")
	}
	if b.one("hold orders").Parent.SpanID() != grant.SpanContext.SpanID() || h.SpanContext().SpanID() != grant.SpanContext.SpanID() {
		t.Error("the hold is not in the trace of the grant")
	}
}

// rootsOnce samples the first n traces that begin here.
type rootsOnce struct{ n *int }

func (rootsOnce) Description() string { return "rootsOnce" }

func (s rootsOnce) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == "held orders" {
		*s.n--
	}
	if *s.n < 0 {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}

// TestNextTraceDeclined: a sampler that does not want the next trace has the old one go on, thinned out, and is
// asked again later.
func TestNextTraceDeclined(t *testing.T) {
	asked := 0
	b := newBench(t, withSampler(sdktrace.ParentBased(rootsOnce{&asked})))
	h := b.grant()
	for range 360 {
		h.Renewal(renewed(time.Now()))
	}
	asked = 0
	for range 300 {
		h.Renewal(renewed(time.Now()))
	}
	if asked != -1 {
		t.Errorf("asked %d times", -asked)
	}
	h.Renewal(failed())
	if got := b.ordinals(); len(got) != 362 || !slices.Equal(got[360:], []int{512, 661}) {
		t.Errorf("after the refusal: %v", got[360:])
	}
	asked = 1 // the next time is fine
	for range 60 {
		h.Renewal(renewed(time.Now()))
	}
	if n := len(b.named("held orders")); n != 1 {
		t.Errorf("asked too early: %d traces", n)
	}
	h.Renewal(renewed(time.Now()))
	if n := len(b.named("held orders")); n != 2 || asked != 0 {
		t.Errorf("%d traces, asked %d times", n, 1-asked)
	}
	h.Renewal(renewed(time.Now()))
	if got := b.ordinals(); !slices.Equal(got[362:], []int{721, 722}) {
		t.Errorf("in the new trace: %v", got[362:])
	}
}

// TestUnsampled: no spans, and the trace id of the caller on log records.
func TestUnsampled(t *testing.T) {
	b := newBench(t, withSampler(sdktrace.NeverSample()))
	id := map[string]any{"trace_id": trace.SpanContextFromContext(b.caller).TraceID().String()}
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.BlockedBy("other", goodTraceparent)
	if a.Traceparent() != "" {
		t.Error("a traceparent that leads nowhere")
	}
	a.Deadlock("all of it", false)
	wantIn(t, "deadlock", b.record(telemetry.LogDeadlock), id)
	h := new(telemetry.Hold)
	a.Grant(h, "app:1", 7)
	_, batch := b.StartBatch(context.Background(), "n", 1, 0, true)
	ev := renewed(time.Now())
	ev.Batch = &batch
	h.Renewal(ev)
	batch.End(1, 0, 0, 0, "", nil)
	h.Warn(time.Minute)
	wantIn(t, "held", b.record(telemetry.LogHeld), id)
	h.Lost(telemetry.LossUnreachable, errBoom, nil)
	wantIn(t, "lost", b.record(telemetry.LogLost), id)
	_, rel := b.StartRelease(b.caller, h)
	rel.End(telemetry.ReleaseLost, false, nil)
	h.End(telemetry.EndLost)
	if n := len(b.spans.GetSpans()); n != 0 || h.SpanContext().IsValid() {
		t.Errorf("%d spans", n)
	}
	b.want(1, telemetry.MetricRenewals, "lockdog.group=orders", "lockdog.outcome=renewed")
	b.want(1, telemetry.MetricDeadlocks, "lockdog.group=orders")
}

func TestBatchOutcomes(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		renewed, missing, taken, failed int
		err                             error
		want                            string
		status                          codes.Code
	}{
		{3, 0, 0, 0, nil, "ok", codes.Unset},
		{0, 2, 1, 0, nil, "ok", codes.Unset},
		{1, 0, 0, 2, nil, "partial", codes.Unset},
		{2, 0, 0, 1, errBoom, "partial", codes.Error},
		{0, 0, 0, 3, nil, "error", codes.Error},
		{0, 0, 0, 0, errBoom, "error", codes.Error},
	} {
		b.spans.Reset()
		before, _ := b.value(telemetry.MetricBatchDuration, "lockdog.outcome="+c.want)
		_, batch := b.StartBatch(b.caller, "n", 3, -time.Second, true)
		batch.End(c.renewed, c.missing, c.taken, c.failed, telemetry.ErrorPool, c.err)
		batch.End(0, 0, 0, 3, "", nil) // ended already
		s := b.one("renew batch")
		kind := map[bool]string{true: "pool"}[c.want != "ok"]
		if attrs(s)["lockdog.outcome"] != c.want || s.Status.Code != c.status || attrs(s)["error.type"] != kind || s.Parent.IsValid() {
			t.Errorf("%+v: %v %v", c, attrs(s), s.Status)
		}
		b.want(before+1, telemetry.MetricBatchDuration, "lockdog.outcome="+c.want)
	}
	p := points(b.metrics()[telemetry.MetricScheduleLag.Name])[""]
	if p.value != 6 || p.sum != 0 {
		t.Errorf("lag %+v; one that is early counts as none", p)
	}
	if p := points(b.metrics()[telemetry.MetricBatchSize.Name])[""]; p.value != 6 || p.sum != 18 {
		t.Errorf("sizes %+v", p)
	}
}
