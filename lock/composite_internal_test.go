package lock

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/lockdog/lockdog/internal/redistest"
)

// A composite that ends while its locks are joined takes no further handle. One that comes too late is released: otherwise the outer lease
// would keep its lock for another lease after its own Release.
func TestCompositeLeaseJoinsNothingAfterItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openFor(t, redistest.StartFake(t).Client(t), WithReentrancy())
		m := c.Multi([]string{"a", "b"})
		outer, err := c.Mutex("b").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h := carriedLease(outer.Context(), &m.locks[1])
		comp := newCompositeLease(outer.Context(), m.locks, m.name, 2, 2)
		comp.mu.Lock()
		comp.handle.endContext(errors.New("another member was lost"))
		comp.mu.Unlock()
		if comp.join(outer.Context(), h.g, &m.locks[1]) {
			t.Error("it joined a composite that has ended")
		}
		synctest.Wait()
		if !h.only() {
			t.Error("the handle that came too late is left")
		}
		if err := outer.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if h, err := c.Mutex("b").Inspect(t.Context()); err != nil || h.Held {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// A node that is lost while the votes are counted, and another one whose client closes, are too many together.
func TestCompositeLeaseEndsIfTooFewAreLeftWhenItIsFormed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openFor(t, redistest.StartFake(t).Client(t))
		m := c.Multi([]string{"a", "b", "c", "d"}) // as if these were nodes, of which three are needed
		comp := newCompositeLease(t.Context(), m.locks, m.name, 3, 4)
		for i := range m.locks[:3] {
			l, err := m.locks[i].acquire(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Release(t.Context()) }()
			if g := l.target.(*grant); !comp.add(g, l) {
				t.Fatal("it has ended before")
			}
		}
		comp.memberEnded(comp.all()[0].Lease, &LostError{Name: "a", Cause: CauseMissing})
		if comp.handle.Err() != nil {
			t.Fatal("three of four are enough")
		}
		comp.dropPending()
		if err := comp.handle.Err(); !errors.Is(err, ErrLost) || comp.handle.Context().Err() == nil {
			t.Errorf("two of three are left of the three that are needed, and it lives: %v", err)
		}
		synctest.Wait()
	})
}

// subscriptionRefused returns although the logger blocks: its caller receives the messages of all channels.
func TestRefusedSubscriptionIsLoggedByTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		c := openFor(t, redistest.StartFake(t).Client(t), WithLogger(slog.New(slog.NewTextHandler(blockedWriter(unblock), nil))))
		c.subscriptionRefused("", errors.New("refused"))
		c.subscriptionRefused("", nil)
		close(unblock)
	})
}

// blockedWriter is a writer that blocks until it is closed.
type blockedWriter chan struct{}

func (w blockedWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}
