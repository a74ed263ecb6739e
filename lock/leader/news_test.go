package leader_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/leader"
)

func TestOnNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t, lock.WithClientID("south"))
		var d diary
		release := srv.Hold(name, "north:1b2c-1")
		start(t, srv.Client().Mutex(name), untilOver, d.told()...)
		var told []string
		wants := func(within time.Duration, want ...string) {
			t.Helper()
			time.Sleep(within)
			synctest.Wait()
			told = append(told, want...)
			if got := d.String(); got != strings.Join(told, "; ") {
				t.Fatalf("told %q, want %q", got, strings.Join(told, "; "))
			}
		}
		wants(99 * time.Millisecond)
		wants(time.Millisecond, "new leader north")
		wants(ages)
		release()
		wants(0, "elected", "new leader south")
		wants(ages)
		srv.Lose(name, lock.CauseTaken)
		wants(2*time.Second, `deposed: lockdog: lease of lock "leader:reports" lost: taken`, "new leader locktest/thief")
		wants(time.Minute, "elected", "new leader south")
	})
}

// bystander is a lock that this process never gets.
type bystander struct{ *sick }

func (b bystander) Lock(ctx context.Context) (*lock.Lease, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// OnNewLeader is called once for each process that is elected, at most one interval after the election.
func TestOnNewLeader_Others(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 3 * time.Second
		srv := server(t)
		var d diary
		m := bystander{&sick{Mutex: srv.Client().Mutex(name)}}
		start(t, m, untilOver, append(d.told(), leader.WithInspectInterval(interval))...)
		time.Sleep(time.Minute)
		if n := m.inspects.Load(); n < 20 || n > 24 {
			t.Errorf("looked %d times in a minute", n)
		}
		for _, c := range []struct{ owner, told string }{
			{"pod-0:aa-1", "new leader pod-0"},
			{"pod-0:aa-2", ""},                 // another term of the same
			{"pod-0:aa-3:write", ""},           // as the writer of an RWMutex
			{"pod-0:bb-1", "new leader pod-0"}, // it was restarted
			{"host/7:with:colons:cc-1", "new leader host/7:with:colons"},
			{"8743c9c0-0795-4907-87fd-6c719a6b4586:57", "new leader 8743c9c0-0795-4907-87fd-6c719a6b4586"},
			{"8743c9c0-0795-4907-87fd-6c719a6b4586:58", ""}, // another thread of Redisson's
			{"8743c9c0-0795-4907-87fd-0123456789ab:57", "new leader 8743c9c0-0795-4907-87fd-0123456789ab"},
			{"somebody", "new leader somebody"},
		} {
			before := d.String()
			release := srv.Hold(name, c.owner)
			time.Sleep(interval)
			synctest.Wait()
			if got := strings.TrimPrefix(strings.TrimPrefix(d.String(), before), "; "); got != c.told {
				t.Errorf("%s: told %q, want %q", c.owner, got, c.told)
			}
			release()
			time.Sleep(time.Minute) // nobody leads, and nobody is told
		}
	})
}

// While this process leads it asks nothing; without OnNewLeader, it never does.
func TestOnNewLeader_Cost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t)
		asks := &sick{Mutex: srv.Client().Mutex(name)}
		start(t, asks, untilOver, leader.OnNewLeader(func(string) {}))
		time.Sleep(ages)
		if n := asks.inspects.Load(); n != 0 {
			t.Errorf("a leader looked %d times who leads", n)
		}
		asksNot := &sick{Mutex: srv.NewClient().Mutex(name)}
		start(t, asksNot, untilOver)
		time.Sleep(ages)
		if n := asksNot.inspects.Load(); n != 0 {
			t.Errorf("it was looked %d times for nobody", n)
		}
	})
}

// An answer from before this process's own election is no news.
func TestOnNewLeader_StaleAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t, lock.WithClientID("south"))
		release := srv.Hold(name, "north:1b2c-1")
		m := slow{srv.Client().Mutex(name)}
		var d diary
		start(t, m, untilOver, d.told()...)
		time.Sleep(firstAnswer / 2) // it has been asked
		release()
		time.Sleep(ages)
		if got := d.String(); got != "elected; new leader south" {
			t.Errorf("told %q", got)
		}
	})
}

const firstAnswer = 2 * time.Second

// slow is a lock whose Inspect answers late.
type slow struct{ *lock.Mutex }

func (s slow) Inspect(ctx context.Context) (lock.Holder, error) {
	h, err := s.Mutex.Inspect(ctx)
	time.Sleep(firstAnswer)
	return h, err
}
