package lock_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestStory tells one story of two clients and compares every span, attribute and link with testdata/story.golden.
// Renewals are those that a message on the control channel asks for, so that their number doesn't hang on time: the
// lease is the default one, whose own renewals are ten seconds away.
func TestStory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb, wire := throughProxy(t, srv)
		renewals, pulse := throughProxy(t, srv)
		far := func(redistest.Chunk) redistest.Verdict { return redistest.Delay(time.Millisecond) } // so that one thing comes after the other
		wire.set(far)
		pulse.set(far)
		s := newScope(t)
		a := s.open(t, rdb, lock.WithClientID("a"), lock.WithRenewalClient(renewals))
		b := s.open(t, rdb, lock.WithClientID("b"))
		caller := func(name string) (context.Context, trace.Span) {
			return s.tracer.Tracer("the program").Start(context.Background(), name)
		}
		spans := func(name string, n int) {
			t.Helper()
			eventually(t, patience, func() bool { return len(s.spansNamed(name)) == n })
		}
		heard := func(l *lock.Lease) (control string) {
			t.Helper()
			control = "lockdog:control:" + l.Owner()[:len(l.Owner())-2] // less "-<seq>"
			eventually(t, patience, func() bool { return rdb.PubSubNumSub(t.Context(), control).Val()[control] == 1 })
			return control
		}
		check := func(l *lock.Lease) { // as after a forced unlock
			t.Helper()
			rdb.Publish(t.Context(), heard(l), l.Owner())
		}
		free(t, try(t, a.Mutex("warm:up"))) // the server knows the scripts, the connection for renewals is a new one
		s.spans.Reset()

		// a takes the lock and renews it; one renewal fails, and its retry does not.
		ctx, request := caller("request of a")
		held, err := a.Mutex("story:1").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		check(held)
		spans("renew story", 1)
		cut := redistest.ReplyTo(redistest.Cut, pulse.script("renew", "story"), redistest.Nth(1))
		pulse.set(func(c redistest.Chunk) redistest.Verdict {
			if v := cut(c); v != redistest.Pass {
				return v
			}
			return far(c)
		})
		check(held)
		spans("renew story", 3)
		pulse.set(far)

		// b finds it held, waits, and has it when a releases.
		bctx, brequest := caller("request of b")
		if _, err := b.Mutex("story:1").TryLock(bctx); err == nil {
			t.Fatal("b took what a holds")
		}
		asked := s.sent(t, telemetry.PurposeAcquire)
		next := make(chan taken, 1)
		listener := rdb.Subscribe(t.Context(), "redisson_lock__channel:{story:1}") // so that b is woken, and not granted a lease that is renewed soon
		defer func() { _ = listener.Close() }()
		if _, err := listener.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			l, err := b.Mutex("story:1").Lock(bctx)
			next <- taken{l, err}
		}()
		eventually(t, patience, func() bool { return s.sent(t, telemetry.PurposeAcquire) >= asked+2 }) // again once subscribed
		asleep(t, b, 1)
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		spans("hold story", 1)
		request.End()
		l := granted(t, next)

		// An operator takes it away.
		heard(l)
		if _, err := a.Mutex("story:1").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustBeLost(t, l, lock.CauseForced)
		mustMatch(t, l.Release(bctx), lock.ErrLost)
		spans("hold story", 2)
		brequest.End()

		// Another request of b ends while the lock is held; it is released without a caller's span.
		ctx, third := caller("canceled request of b")
		ctx, cancel := context.WithCancel(ctx)
		if l, err = b.Mutex("story:1", lock.WithoutHolderLinks()).Lock(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		cancel()
		_ = mustBeCanceled(t, l, lock.ReasonContext)
		spans("cancel story", 1)
		free(t, l)
		spans("hold story", 3)
		third.End()
		spans("renew batch", 4)

		got := []byte(render(s.spans.GetSpans()))
		const golden = "testdata/story.golden"
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the story has changed; -update writes %s anew:\n%s", golden, difference(string(want), string(got)))
		}
		told(t, s, held)
	})
}

// told checks the log records of the story: each has name, owner, token and the ids of its span.
func told(t *testing.T, s *scope, first *lock.Lease) {
	t.Helper()
	for kind, span := range map[telemetry.Log]string{
		telemetry.LogFail: "renew story", telemetry.LogBack: "renew story",
		telemetry.LogLost: "lost story", telemetry.LogEnd: "cancel story",
	} {
		records := s.records(t, kind)
		if len(records) != 1 {
			t.Errorf("%d records %q, want 1", len(records), kind.Message)
			continue
		}
		r := records[0]
		owner, _ := r["owner"].(string)
		token, _ := r["token"].(float64)
		if r["name"] != "story:1" || owner == "" || int64(token) < first.Token() {
			t.Errorf("record %q: name %v, owner %v, token %v", kind.Message, r["name"], r["owner"], r["token"])
		}
		found := false
		for _, sp := range s.spansNamed(span) {
			found = found || r["trace_id"] == sp.SpanContext.TraceID().String() && r["span_id"] == sp.SpanContext.SpanID().String() &&
				attrsOf(sp)["lockdog.name"] == "story:1"
		}
		if !found {
			t.Errorf("record %q has trace_id %v and span_id %v, which is no %q span's", kind.Message, r["trace_id"], r["span_id"], span)
		}
	}
}

// difference is the first line in which two texts differ, and a few more.
func difference(want, got string) string {
	w, g := bytes.Split([]byte(want), []byte("\n")), bytes.Split([]byte(got), []byte("\n"))
	for i := range min(len(w), len(g)) {
		if !bytes.Equal(w[i], g[i]) {
			return fmt.Sprintf("line %d\n- %s\n+ %s\n\n%s", i+1, w[i], g[i], got)
		}
	}
	return fmt.Sprintf("%d lines became %d\n\n%s", len(w), len(g), got)
}
