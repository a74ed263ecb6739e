package lock

import (
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// What is released is forgotten, also where others of the same key are held yet.
func TestLookoutsForget(t *testing.T) {
	t.Parallel()
	c, err := New(redistest.Shared(t).Client(t), WithLossNotifications(), WithKeyPrefix(redistest.Shared(t).Prefix()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	m, readers := c.Mutex("mutex"), c.RWMutex("rw").RLocker()
	var leases []*Lease
	for _, l := range []Locker{m, readers, readers, c.Mutex("fixed", WithFixedLease(time.Minute))} {
		lease, err := l.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	s := c.lookouts
	for _, want := range []struct{ keys, readers int }{{2, 2}, {1, 2}, {1, 1}, {0, 0}, {0, 0}} {
		s.mu.Lock()
		held, readers := 0, 0
		for _, lo := range s.at {
			held += lo.held
		}
		for _, h := range s.keys {
			if len(h.grants) > 0 && h.grants[0].lock.kind == readKind {
				readers = len(h.grants)
			}
		}
		if len(s.keys) != want.keys || held != want.keys || readers != want.readers {
			t.Errorf("with %d leases: %d keys, %d at nodes, %d readers; want %+v", len(leases), len(s.keys), held, readers, want)
		}
		s.mu.Unlock()
		if len(leases) > 0 {
			if err := leases[0].Release(t.Context()); err != nil {
				t.Error(err)
			}
			leases = leases[1:]
		}
	}
}
