package lock_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Options and a ReadTimeout with Go's longest duration don't overflow: they aren't over at once.
func TestLongestDurations(t *testing.T) {
	t.Parallel()
	const longest = math.MaxInt64
	t.Run("options", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := openedBy(t, newStore(t, "app:"))
			opts := []lock.LockOption{lock.WithWait(longest), lock.WithMaxHold(longest), lock.WithHeartbeat(longest), lock.WithHoldWarning(longest)}
			for _, m := range []lock.Locker{
				c.Mutex("mutex", opts...), c.FairMutex("fair", opts...), c.RWMutex("rw", opts...), c.Multi([]string{"one", "two"}, opts...),
			} {
				l := try(t, m)
				next := begin(t.Context(), m)
				<-time.After(10 * time.Minute)
				must(t, "the lease", l.Err())
				mustBe(t, "grants", len(next), 0)
				free(t, l)
				free(t, granted(t, next))
			}
		})
	})
	t.Run("ReadTimeout", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			sp := redistest.StartFake(t)
			c := newScope(t).open(t, sp.Client(t, func(o *redis.Options) { o.ReadTimeout = longest }))
			l := try(t, c.Mutex("job"))
			if h, err := c.Mutex("job").Inspect(t.Context()); err != nil || !h.Held {
				t.Errorf("Inspect: %+v, %v", h, err)
			}
			free(t, l)
		})
	})
}
