//go:build e2e

package e2e_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockdog/lockdog/telemetry"
)

// The names of spans, and the tags that are looked at.
const requestSpan = "POST /orders/{id}"

func ofOrders(s telemetry.Span) string { return s.Name + " orders" }
func ofReport(s telemetry.Span) string { return s.Name + " report" }

func tag(key attribute.Key) string { return string(key) }

// requestHold is how long the request under test holds its lock: for three renewals, and for two beside a busy machine.
const requestHold = 4 * time.Second

// testTraces sends a request to one process, and one for the same order to the other while the first holds the lock.
func testTraces(t *testing.T, s *stack, facts *report) {
	holderTrace, waiterTrace := newTraceID(), newTraceID()
	const order = "/orders/e2e-1"
	held := make(chan error, 1)
	go func() { held <- post(t, s.a.url+order+"?work="+requestHold.String(), holderTrace) }()
	until(t, requestHold/2, "the first request holds its lock", func() error {
		body, err := get(t, s.a.url+"/debug/locks?format=json&q=orders:e2e-1")
		if err != nil {
			return err
		}
		return unless(strings.Contains(string(body), holderTrace), "/debug/locks: %s", body)
	})
	if err := post(t, s.b.url+order+"?work=0s", waiterTrace); err != nil {
		t.Fatal(err)
	}
	if err := <-held; err != nil {
		t.Fatal(err)
	}

	renew := ofOrders(telemetry.SpanRenew)
	holder := s.jaeger.complete(t, holderTrace, requestSpan, ofOrders(telemetry.SpanAcquire), ofOrders(telemetry.SpanHeld),
		renew, renew, ofOrders(telemetry.SpanRelease), ofOrders(telemetry.SpanHold))
	checkRequest(t, s, holder)
	waiter := s.jaeger.complete(t, waiterTrace, requestSpan, ofOrders(telemetry.SpanAcquire), ofOrders(telemetry.SpanHold))
	checkWaiter(t, holder, waiter)
	checkNoStrays(t, s)
	facts.add("a request of %v: %d renewals in its trace %s", requestHold, len(holder.all(renew)), holderTrace)
}

// checkRequest follows a request from its acquire to its release.
func checkRequest(t *testing.T, s *stack, tr *jaegerTrace) {
	request := tr.one(t, requestSpan)
	acquire := tr.one(t, ofOrders(telemetry.SpanAcquire))
	held := tr.one(t, ofOrders(telemetry.SpanHeld))
	renewals := tr.all(ofOrders(telemetry.SpanRenew))
	release := tr.one(t, ofOrders(telemetry.SpanRelease))
	hold := tr.one(t, ofOrders(telemetry.SpanHold))

	child(t, acquire, request)
	child(t, held, acquire)
	child(t, release, request)
	child(t, hold, held)
	linked(t, release, held)

	inOrder(t, "the request, the acquire, the grant, and the acquire's end", request.StartTime, acquire.StartTime, held.StartTime, acquire.end())
	inOrder(t, "the grant, the release, the end of the hold and of the request", held.StartTime, release.StartTime, hold.end(), request.end())
	if hold.StartTime != held.StartTime {
		t.Errorf("the hold begins %d µs after the grant", hold.StartTime-held.StartTime)
	}
	if d := time.Duration(hold.Duration) * time.Microsecond; d < requestHold {
		t.Errorf("held for %v, want %v at least", d, requestHold)
	}

	before := held.StartTime
	for i, r := range renewals {
		child(t, r, held)
		what := fmt.Sprintf("renewal %d", i+1)
		if n, outcome := r.Tags.get(tag(telemetry.KeyOrdinal)), r.Tags.get(tag(telemetry.KeyOutcome)); n != strconv.Itoa(i+1) || outcome != "renewed" {
			t.Errorf("%s has ordinal %s and outcome %s", what, n, outcome)
		}
		inOrder(t, what+" and the release", before, r.StartTime, release.StartTime)
		before = r.end()
	}

	// What lockdog sent, by redisotel: acquires below the acquire, renewals below the call that renewed for several locks.
	if !hasScript(tr, acquire) {
		t.Errorf("no script below %v", acquire)
	}
	spans := tr.Spans
	for _, r := range renewals {
		spans = slices.Concat(spans, checkBatch(t, s, r).Spans)
	}
	for _, s := range spans {
		if text := s.Tags.get("db.statement") + s.Tags.get("db.query.text"); text != "" {
			t.Errorf("%v has a statement: %s", s, text)
		}
	}
}

// checkBatch follows a renewal to its batch, and returns the trace of that. The batch has a script if the agent has renewed
// none of its leases, and no script if it has renewed all. If it has renewed some, another batch may be for the rest.
func checkBatch(t *testing.T, s *stack, renewal *span) *jaegerTrace {
	t.Helper()
	links := renewal.links()
	if len(links) != 1 {
		t.Fatalf("%v has %d links, want one to its batch", renewal, len(links))
	}
	tr := s.jaeger.complete(t, links[0].TraceID, telemetry.SpanBatch.Name)
	b := tr.byID(links[0].SpanID)
	if b == nil || b.OperationName != telemetry.SpanBatch.Name || b.parent() != "" {
		t.Fatalf("%v links to %v of %v", renewal, b, tr)
	}
	byAgent, size := b.Tags.get(tag(telemetry.KeyByAgent)), b.Tags.get(tag(telemetry.KeyBatchSize))
	if sent := hasScript(tr, b); sent && byAgent == size || !sent && byAgent == "" {
		t.Errorf("the batch of %v has the tags %v and the spans %v", renewal, b.Tags, tr)
	}
	return tr
}

// checkWaiter finds the way from the one that waited to the one it waited for, in another process.
func checkWaiter(t *testing.T, holder, waiter *jaegerTrace) {
	theirs, ours := holder.one(t, ofOrders(telemetry.SpanAcquire)), waiter.one(t, ofOrders(telemetry.SpanAcquire))
	linked(t, ours, theirs)
	if a, b := holder.pid(theirs), waiter.pid(ours); a == "" || b == "" || a == b {
		t.Errorf("the holder's pid is %q, the waiter's %q", a, b)
	}
	if owner := theirs.Tags.get(tag(telemetry.KeyOwner)); owner == "" || ours.Tags.get(tag(telemetry.KeyBlockedBy)) != owner {
		t.Errorf("blocked by %q, the holder is %q", ours.Tags.get(tag(telemetry.KeyBlockedBy)), owner)
	}
	token := func(s *span) int64 {
		n, err := strconv.ParseInt(s.Tags.get(tag(telemetry.KeyToken)), 10, 64)
		if err != nil {
			t.Errorf("%v: token: %v", s, err)
		}
		return n
	}
	if token(ours) <= token(theirs) {
		t.Errorf("the waiter's token %d is not above the holder's %d", token(ours), token(theirs))
	}
	release := holder.one(t, ofOrders(telemetry.SpanRelease))
	inOrder(t, "the acquire of the waiter, the release, and the grant to the waiter",
		ours.StartTime, release.StartTime, waiter.one(t, ofOrders(telemetry.SpanHeld)).StartTime)
}

// checkNoStrays: no script that lockdog sent is a trace of its own, in which nobody could tell what it was for.
func checkNoStrays(t *testing.T, s *stack) {
	for service := range leases {
		all, err := s.jaeger.find(t, service, "evalsha")
		if err != nil || len(all) == 0 {
			t.Errorf("%s: %d traces with a script, %v", service, len(all), err)
		}
		for _, tr := range all {
			for _, script := range tr.all("evalsha") {
				if len(script.References) == 0 {
					t.Errorf("%v of %s has no parent", script, service)
				}
			}
		}
	}
}

// testLosses looks at the traces of the locks that were lost when Redis was cut off.
func testLosses(t *testing.T, s *stack) {
	lost := ofReport(telemetry.SpanLost)
	for service := range leases {
		var found *jaegerTrace
		until(t, spanLimit, "a loss of "+service+" is in Jaeger", func() error {
			all, err := s.jaeger.find(t, service, lost)
			if err != nil {
				return err
			}
			for _, tr := range all {
				if len(tr.all(ofReport(telemetry.SpanHold))) > 0 {
					found = tr
				}
			}
			return unless(found != nil, "%d traces with %q, none of them complete", len(all), lost)
		})
		held, loss := found.one(t, ofReport(telemetry.SpanHeld)), found.one(t, lost)
		child(t, loss, held)
		if cause, failed := loss.Tags.get(tag(telemetry.KeyCause)), loss.Tags.get("error"); cause != "unreachable" || failed != "true" {
			t.Errorf("%v: cause %q, error %q", loss, cause, failed)
		}
		failures := 0
		for _, r := range found.all(ofReport(telemetry.SpanRenew)) {
			child(t, r, held)
			if r.Tags.get(tag(telemetry.KeyOutcome)) == "error" {
				failures++
			}
		}
		if failures == 0 {
			t.Errorf("%s was lost without a failed renewal: %v", found.TraceID, found)
		}
	}
}

// child checks that a span has the parent it should.
func child(t *testing.T, s, parent *span) {
	t.Helper()
	if s.parent() != parent.SpanID {
		t.Errorf("%v is a child of %q, want %v", s, s.parent(), parent)
	}
}

// linked checks that a span links to another.
func linked(t *testing.T, s, to *span) {
	t.Helper()
	for _, l := range s.links() {
		if l.TraceID == to.TraceID && l.SpanID == to.SpanID {
			return
		}
	}
	t.Errorf("%v links to %v, not to %v", s, s.links(), to)
}

func inOrder(t *testing.T, what string, times ...int64) {
	t.Helper()
	if !slices.IsSorted(times) {
		t.Errorf("not in this order: %s: %d", what, times)
	}
}

// hasScript tells whether a script was sent below a span.
func hasScript(tr *jaegerTrace, s *span) bool {
	return slices.ContainsFunc(tr.Spans, func(c *span) bool {
		return c.parent() == s.SpanID && (c.OperationName == "evalsha" || c.OperationName == "eval")
	})
}

func newTraceID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// post sends a request as part of a trace.
func post(t *testing.T, url, traceID string) error {
	req, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Traceparent", "00-"+traceID+"-"+newTraceID()[:16]+"-01")
	_, err = call(t, req)
	return err
}
