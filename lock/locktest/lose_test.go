package locktest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// holds are what clients of one server may hold of a name.
var holds = map[string]func(t *testing.T, srv *locktest.Server) []*lock.Lease{
	"Mutex": func(t *testing.T, srv *locktest.Server) []*lock.Lease {
		return grab(t, srv.Client().Mutex(name))
	},
	"FairMutex": func(t *testing.T, srv *locktest.Server) []*lock.Lease {
		return grab(t, srv.Client().FairMutex(name))
	},
	"writer": func(t *testing.T, srv *locktest.Server) []*lock.Lease {
		return grab(t, srv.Client().RWMutex(name))
	},
	"readers of two clients": func(t *testing.T, srv *locktest.Server) []*lock.Lease {
		return grab(t, srv.Client().RWMutex(name).RLocker(), srv.NewClient().RWMutex(name).RLocker())
	},
	"member of a Multi": func(t *testing.T, srv *locktest.Server) []*lock.Lease {
		return grab(t, srv.Client().Multi([]string{"another", name}))
	},
	"permits of two clients": func(t *testing.T, srv *locktest.Server) []*lock.Lease {
		permits := srv.Client().Semaphore(name)
		if err := permits.EnsurePermits(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		return grab(t, permits, permits, srv.NewClient().Semaphore(name))
	},
}

// grab takes locks that are free.
func grab(t *testing.T, lockers ...lock.Locker) (leases []*lock.Lease) {
	t.Helper()
	for _, l := range lockers {
		lease, err := l.TryLock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	return leases
}

// Lose takes a name from all who hold it now, whatever the kind, and nothing else.
func TestLose(t *testing.T) {
	for kind, hold := range holds {
		for _, want := range []lock.Cause{lock.CauseMissing, lock.CauseTaken, lock.CauseUnreachable} {
			limit := time.Second // until the holders hear of it
			if strings.HasPrefix(kind, "permits") {
				limit = lock.DefaultLease / 3 // the next renewal
				if want == lock.CauseTaken {
					continue
				}
			}
			t.Run(kind+"/"+string(want), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := locktest.New(t, lock.WithKeyPrefix("app:"))
					leases, other := hold(t, srv), takeNamed(t, srv, "other")
					start, deadline := time.Now(), leases[0].Deadline()
					srv.Lose("app:"+name, want)
					for _, l := range leases {
						if got := cause(t, l); got != want {
							t.Errorf("lost as %s, asked for %s", got, want)
						}
					}
					after := time.Since(start)
					if unreachable := want == lock.CauseUnreachable; unreachable && time.Now().Before(deadline) || !unreachable && after > limit {
						t.Errorf("the holders heard of it after %v", after)
					}
					if kind == "Mutex" {
						synctest.Wait() // the client takes away what it may have left
						h, err := srv.Client().Mutex(name).Inspect(t.Context())
						if taken := want == lock.CauseTaken; err != nil || h.Held != taken || taken && h.Owner != locktest.Thief {
							t.Errorf("afterwards: %+v, %v", h, err)
						}
						time.Sleep(lock.DefaultLease) // the thief's
						next := take(t, srv.Client())
						time.Sleep(3 * lock.DefaultLease)
						if next.Err() != nil {
							t.Errorf("the next lease: %v", next.Err())
						}
					}
					time.Sleep(3 * lock.DefaultLease)
					if other.Err() != nil {
						t.Errorf("another lock: %v", other.Err())
					}
				})
			})
		}
	}
}

// A lease that can't be renewed any more can still be taken away.
func TestLose_UnreachableAndForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		l := take(t, srv.Client())
		srv.Lose(name, lock.CauseUnreachable)
		if _, err := srv.NewClient().Mutex(name).ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := cause(t, l); got != lock.CauseForced {
			t.Errorf("lost as %s", got)
		}
	})
}

// The thief of an RWMutex is a writer, for what is left of the lease.
func TestLose_ThiefWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		rw := srv.Client().RWMutex(name)
		reader := grab(t, rw.RLocker())[0]
		srv.Lose(name, lock.CauseTaken)
		cause(t, reader)
		h, err := rw.Inspect(t.Context())
		if err != nil || h.Mode != "write" || h.Owner != locktest.Thief+":write" {
			t.Errorf("afterwards: %+v, %v", h, err)
		}
		if _, err := rw.TryRLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a reader beside the thief: %v", err)
		}
		time.Sleep(lock.DefaultLease)
		grab(t, rw)
	})
}

// A semaphore that is gone has no permits until it is given some.
func TestLose_PermitsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		for _, l := range holds["permits of two clients"](t, srv) {
			defer func() { _ = l.Release(context.Background()) }()
		}
		srv.Lose(name, lock.CauseMissing)
		permits := srv.Client().Semaphore(name)
		if total, err := permits.Total(t.Context()); err != nil || total != 0 {
			t.Errorf("total %d, %v", total, err)
		}
		if err := permits.EnsurePermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		grab(t, permits)
	})
}

// A forced unlock reaches the holder also right after its client's first grant, before the client listens.
func TestForceUnlockAfterTheFirstGrant(t *testing.T) {
	for kind, hold := range holds {
		if strings.HasPrefix(kind, "permits") {
			continue // nobody takes these away
		}
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := locktest.New(t)
				leases, start := hold(t, srv), time.Now()
				force := srv.NewClient().Mutex(name).ForceUnlock
				if kind == "writer" || strings.HasPrefix(kind, "readers") {
					force = srv.NewClient().RWMutex(name).ForceUnlock
				}
				if was, err := force(t.Context()); err != nil || !was {
					t.Fatalf("ForceUnlock: %v, %v", was, err)
				}
				for _, l := range leases {
					if got := cause(t, l); got != lock.CauseForced || time.Since(start) > time.Second {
						t.Errorf("lost as %s, after %v", got, time.Since(start))
					}
				}
			})
		})
	}
}
