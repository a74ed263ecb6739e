package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// A release wakes a waiter of the same process at once, of every kind, although Redis refuses the client's
// subscriptions. Such a waiter would otherwise only poll twice a second.
func TestReleaseWakesTheDeafOfItsProcess(t *testing.T) {
	t.Parallel()
	for _, holder := range alikes {
		for _, waiter := range alikes {
			t.Run(waiter.name+" waits for "+holder.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := redistest.StartFake(t)
					srv.SetRefusal(refuseAny([]string{"SUBSCRIBE"}, "ERR no subscription for you"))
					c := openTapped(t, srv, fakeredis.Tap{})
					l := try(t, holder.make(c, "a", lock.WithLease(far)))
					next := begin(t.Context(), waiter.make(c, "a", lock.WithLease(far)))
					<-time.After(10 * time.Second)
					synctest.Wait()
					freed := time.Now()
					free(t, l)
					got := granted(t, next)
					limit := 20 * time.Millisecond // not by asking twice a second
					if holder.name == waiter.name && holder.name == "multi" {
						limit = 800 * time.Millisecond // on its way from the first name to the second it isn't told, and asks 250 to 750 ms later
					}
					if took := time.Since(freed); took > limit {
						t.Errorf("the waiter got in after %v", took)
					}
					free(t, got)
				})
			})
		}
	}
}

// A holder that finds its lock gone makes way for a waiter of every kind in its process, long before that would have asked by itself.
func TestLossWakesWaitersOfItsProcess(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Minute
	for _, holder := range alikes {
		for _, waiter := range alikes {
			t.Run(waiter.name+" waits for "+holder.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := openFake(t, kindOfLock{})
					c := w.client()
					l := try(t, holder.make(c, "a", lock.WithLease(lease)))
					next := begin(t.Context(), waiter.make(c, "a", lock.WithLease(far)))
					synctest.Wait()
					began := time.Now()
					w.raw.del(w.key("a"))
					<-l.Ended()
					_ = l.Release(t.Context()) // of a Multi's other name
					got := granted(t, next)
					if took := time.Since(began); took > lease/2 {
						t.Errorf("the waiter got in after %v", took)
					}
					free(t, got)
				})
			})
		}
	}
}
