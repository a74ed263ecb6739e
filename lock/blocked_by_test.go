package lock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// TestEveryWaitLinksToItsHolders checks that the span of an acquire that waited links to each holder of the lock
// meanwhile. So does one that stood behind a waiter of its process and never asked Redis, and one that gave up.
func TestEveryWaitLinksToItsHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScope(t), redistest.StartFake(t)
		open := func(id string) *lock.Client {
			return open(t, srv.Client(t), lock.WithClientID(id), lock.WithTracerProvider(s.tracer))
		}
		request := func(name string) context.Context {
			ctx, span := s.tracer.Tracer("the program").Start(t.Context(), name)
			t.Cleanup(func() { span.End() })
			return ctx
		}
		held, err := open("a").Mutex("job:1").Lock(request("holder"))
		if err != nil {
			t.Fatal(err)
		}
		m := open("b").Mutex("job:1")
		one, two := queueBehind(t, held, m, request)

		links := map[string][]string{} // the owners that an acquire was blocked by, by its own, "" where it has none
		for _, span := range s.spansNamed("acquire job") {
			owner := attrsOf(span)[telemetry.KeyOwner]
			links[owner] = []string{}
			for _, link := range span.Links {
				if !link.SpanContext.IsSampled() {
					t.Errorf("a link to %v", link.SpanContext)
				}
				for _, kv := range link.Attributes {
					if kv.Key == telemetry.KeyOwner {
						links[owner] = append(links[owner], kv.Value.AsString())
					}
				}
			}
		}
		for owner, want := range map[string][]string{
			held.Owner(): {}, one.Owner(): {held.Owner()}, two.Owner(): {held.Owner(), one.Owner()}, "": {held.Owner()},
		} {
			if !slices.Equal(links[owner], want) {
				t.Errorf("%q links to %q, want %q", owner, links[owner], want)
			}
		}
	})
}

// TestEveryQuorumWaitLinksToAHolder checks the same for a Quorum, where only the head of a process's queue asks the
// nodes.
func TestEveryQuorumWaitLinksToAHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		servers := []*redistest.Fake{redistest.StartFake(t), redistest.StartFake(t), redistest.StartFake(t)}
		open := func(id string) *lock.QuorumMutex {
			var clients []*lock.Client
			for _, srv := range servers {
				clients = append(clients, open(t, srv.Client(t), lock.WithClientID(id), lock.WithTracerProvider(s.tracer)))
			}
			q, err := lock.NewQuorum(clients...)
			if err != nil {
				t.Fatal(err)
			}
			return q.Mutex("job:1")
		}
		held := try(t, open("a"))
		m := open("b")
		queueBehind(t, held, m, func(string) context.Context { return t.Context() })

		waited := 0
		for _, span := range s.spansNamed("acquire job") {
			owner := attrsOf(span)[telemetry.KeyOwner]
			if owner == held.Owner() {
				continue
			}
			waited++
			if blocked := attrsOf(span)[telemetry.KeyBlockedBy]; blocked == "" || len(span.Links) == 0 {
				t.Errorf("%q was blocked by %q, and has %d links", owner, blocked, len(span.Links))
			}
		}
		if waited != 3 {
			t.Errorf("%d acquires waited", waited)
		}
	})
}

// queueBehind has three calls of one process wait for what another process holds: two get it in turn, and release it, and one gives up.
func queueBehind(t *testing.T, held *lock.Lease, m lock.Locker, request func(name string) context.Context) (one, two *lock.Lease) {
	t.Helper()
	first := begin(request("first"), m)
	synctest.Wait()
	second := begin(request("second"), m)
	synctest.Wait()
	impatient, cancel := context.WithTimeout(request("impatient"), time.Second)
	defer cancel()
	if _, err := m.Lock(impatient); err == nil {
		t.Fatal("two hold it")
	}
	free(t, held)
	one = granted(t, first)
	free(t, one)
	two = granted(t, second)
	free(t, two)
	return one, two
}
