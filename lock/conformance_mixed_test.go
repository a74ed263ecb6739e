package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// mixed is the suite of kinds that exclude each other under one name: what ends the holder's grant wakes the waiters of every kind.
// It runs over every shape of server, as numbers does.
var mixed = theme{"mixed", mixedBehaviours()}

// alikes are the kinds that exclude each other under one name.
var alikes = []struct {
	name string
	make func(c *lock.Client, name string, opts ...lock.LockOption) lock.Locker
}{
	{"mutex", func(c *lock.Client, name string, opts ...lock.LockOption) lock.Locker { return c.Mutex(name, opts...) }},
	{"multi", func(c *lock.Client, name string, opts ...lock.LockOption) lock.Locker {
		return c.Multi([]string{name, name + "2"}, opts...) // one name would be released as a Mutex is
	}},
	{"fair", func(c *lock.Client, name string, opts ...lock.LockOption) lock.Locker {
		return c.FairMutex(name, opts...)
	}},
}

func mixedBehaviours() (all []behaviour) {
	type open func(w *world) (holder, waiter *lock.Client)
	places := []struct {
		name string
		open open
	}{
		{"one client", func(w *world) (*lock.Client, *lock.Client) { c := w.client(); return c, c }},
		{"two clients", func(w *world) (*lock.Client, *lock.Client) { return w.client(), w.client() }},
	}
	ends := []struct {
		name string
		end  func(c *lock.Client, l *lock.Lease) error
	}{
		{"Release", func(_ *lock.Client, l *lock.Lease) error { return l.Release(context.Background()) }},
		{"Mutex.ForceUnlock", func(c *lock.Client, _ *lock.Lease) error {
			return second(c.Mutex("a").ForceUnlock(context.Background()))
		}},
		{"FairMutex.ForceUnlock", func(c *lock.Client, _ *lock.Lease) error {
			return second(c.FairMutex("a").ForceUnlock(context.Background()))
		}},
	}
	for _, holder := range alikes {
		for _, waiter := range alikes {
			for _, place := range places {
				for _, end := range ends {
					all = append(all, behaviour{
						name: fmt.Sprintf("%s/%s waits for %s/%s", end.name, waiter.name, holder.name, place.name),
						test: func(t *testing.T, w *world) {
							a, b := place.open(w)
							l := try(t, holder.make(a, "a", lock.WithLease(far)))
							next := begin(context.Background(), waiter.make(b, "a", lock.WithLease(far)))
							asleep(t, b, 1)
							must(t, end.name, end.end(a, l))
							eventually(t, patience, func() bool { return len(w.holders("a")) == 1 })
							_ = l.Release(context.Background()) // of a Multi's other name
							free(t, granted(t, next))
						},
					})
				}
			}
		}
	}
	return append(all, behaviour{name: "crowd", test: mixedCrowd})
}

// Waiters of every kind, in two clients, take turns until each has had ten. A wake-up that doesn't come leaves the lock free for ever.
func mixedCrowd(t *testing.T, w *world) {
	const turns = 10
	clients := []*lock.Client{w.client(), w.client()}
	var all sync.WaitGroup
	for _, c := range clients {
		for _, k := range alikes {
			all.Go(func() {
				m := k.make(c, "a", lock.WithLease(far))
				for range turns {
					ctx, cancel := context.WithTimeout(context.Background(), stretched(2*patience))
					l, err := m.Lock(ctx)
					if err != nil {
						t.Errorf("a %s: %v", k.name, err)
						cancel()
						return
					}
					<-time.After(time.Millisecond)
					if err := l.Release(context.Background()); err != nil {
						t.Errorf("Release: %v", err)
					}
					cancel()
				}
			})
		}
	}
	all.Wait()
}
