package lock

import (
	"errors"
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
		h := held(outer.Context(), &m.locks[1])
		cl := newCompositeLease(outer.Context(), m.locks, m.name, 2, 2)
		cl.mu.Lock()
		cl.handle.endContext(errors.New("another member was lost"))
		cl.mu.Unlock()
		if cl.join(outer.Context(), h.g, &m.locks[1]) {
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
