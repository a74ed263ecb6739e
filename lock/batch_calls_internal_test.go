package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// A batch costs one command, and each of its calls has its own outcome.
func TestBatch_OutcomePerCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		ctx := t.Context()
		r.rdb.Set(ctx, "job:string", "x", 0)
		r.rdb.HSet(ctx, "job:java", "thread:1", 2)
		free := make([]string, 5)
		for i := range free {
			free[i] = fmt.Sprint("job:", i)
		}
		names := append([]string{"job:string", "job:java"}, append(free, "job:0")...)
		all := r.holdTryLock(ctx, names...)
		before := r.srv.Commands(t)["evalsha"]
		r.resume()
		out := make([]outcome, len(all))
		for i, ch := range all {
			out[i] = <-ch
		}
		// The batch was not known yet: EVALSHA, then EVAL.
		if sent := r.srv.Commands(t)["evalsha"] - before; sent != 1 {
			t.Errorf("%d commands for %d calls, want 1", sent, len(all))
		}
		if err := out[0].err; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("a key that is no lock: %v", err)
		}
		var held *HeldError
		if err := out[1].err; !errors.As(err, &held) || held.Owner != "thread:1" || held.Name != "job:java" {
			t.Errorf("a lock that is held: %v", err)
		}
		if err := out[7].err; !errors.As(err, &held) || held.Owner != out[2].l.Owner() {
			t.Errorf("a lock that was acquired in the same batch: %v", err)
		}
		for i := range free {
			o := out[2+i]
			if o.err != nil || o.l.Name() != free[i] {
				t.Fatalf("%s: %v", free[i], o.err)
			}
			if h, err := r.c.Mutex(free[i]).Inspect(ctx); err != nil || h.Owner != o.l.Owner() || h.Token != o.l.Token() {
				t.Errorf("%s: %+v, %v; want %s and token %d", free[i], h, err, o.l.Owner(), o.l.Token())
			}
			r.release(o)
			if !r.gone(free[i]) {
				t.Errorf("%s is still held", free[i])
			}
		}
	})
}

// Calls for one lock exclude each other in a batch, too, if they draw their tokens from different counters.
func TestBatch_SameLockOtherCounter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.hold()
		var all []chan outcome
		for _, m := range []*Mutex{r.c.Mutex("job:x"), r.c.Mutex("job:x", WithRedissonTokens()), r.c.Mutex("job:y")} {
			ch := make(chan outcome, 1)
			all = append(all, ch)
			r.start(func() {
				l, err := m.TryLock(t.Context())
				ch <- outcome{l, err}
			})
		}
		r.resume()
		first, second, other := <-all[0], <-all[1], <-all[2]
		if first.err != nil || !errors.Is(second.err, ErrHeld) || other.err != nil {
			t.Errorf("%v, %v, %v; want the second one refused", first.err, second.err, other.err)
		}
		for _, o := range []outcome{first, second, other} {
			if o.err == nil {
				r.release(o)
			}
		}
	})
}

// Releases share a batch with each other and with acquires.
func TestBatch_Releases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		var leases []outcome
		for i := range 3 {
			l, err := r.c.Mutex(fmt.Sprint("job:", i)).TryLock(t.Context())
			leases = append(leases, outcome{l, err})
		}
		r.rdb.Del(t.Context(), "job:1")
		r.rdb.HSet(t.Context(), "job:1", "thread:1", 1)
		all := r.holdTryLock(t.Context(), "job:new")
		released := make([]chan error, len(leases))
		for i, o := range leases {
			released[i] = make(chan error, 1)
			r.start(func() { released[i] <- o.l.Release(context.Background()) })
		}
		r.resume()
		r.release(<-all[0])
		for i, want := range []error{nil, ErrLost, nil} {
			if err := <-released[i]; !errors.Is(err, want) {
				t.Errorf("release %d: %v, want %v", i, err, want)
			}
		}
		if !r.gone("job:0") || r.gone("job:1") || !r.gone("job:2") {
			t.Error("the wrong locks are held")
		}
	})
}

// What the calls of a batch have in common is sent once. What differs stays with its call, whatever their order.
func TestBatch_UnlikeCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		ctx := t.Context()
		held := []outcome{{}, {}}
		for i := range held {
			held[i].l, held[i].err = r.c.Mutex(fmt.Sprint("job:held-", i)).TryLock(ctx)
		}
		r.hold()
		names := []string{"job:0", "job:1", "job:2", "job:{held-0}", "job:3"}
		taken, released := make([]chan outcome, len(names)), make(chan error, len(held))
		for i, name := range names {
			taken[i] = make(chan outcome, 1)
			r.start(func() {
				l, err := r.c.Mutex(name, WithFixedLease(time.Duration(10+i/2)*time.Minute)).TryLock(ctx)
				taken[i] <- outcome{l, err}
			})
			if i < len(held) {
				r.start(func() { released <- held[i].l.Release(ctx) })
			}
		}
		before := r.srv.Commands(t)["evalsha"]
		r.resume()
		for range held {
			if err := <-released; err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		for i, name := range names {
			o := <-taken[i]
			if o.err != nil {
				t.Fatalf("%s: %v", name, o.err)
			}
			full := time.Duration(10+i/2) * time.Minute
			if left := r.rdb.PTTL(ctx, name).Val(); left > full || left < full-30*time.Second {
				t.Errorf("%s is leased for %v, want %v", name, left, full)
			}
			if h, err := r.c.Mutex(name).Inspect(ctx); err != nil || h.Owner != o.l.Owner() || h.Token != o.l.Token() {
				t.Errorf("%s: %+v, %v; want %s and token %d", name, h, err, o.l.Owner(), o.l.Token())
			}
			defer r.release(o)
		}
		if sent := r.srv.Commands(t)["evalsha"] - before; sent != 1+int64(len(names)) {
			t.Errorf("%d commands, want one, and one for each Inspect", sent)
		}
		if !r.gone("job:held-0") || !r.gone("job:held-1") {
			t.Error("a released lock is still held")
		}
	})
}

// What an ACL forbids to one call fails that call only.
func TestBatch_ForbiddenKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.srv.SetRefusal(func(cmd string, args ...string) string {
			if strings.HasPrefix(cmd, "EVAL") && slices.Contains(args, "other") {
				return "NOPERM No permissions to access a key"
			}
			return ""
		})
		all := r.holdTryLock(t.Context(), "job:1", "other", "job:2")
		r.resume()
		r.release(<-all[0])
		if err := (<-all[1]).err; err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("a forbidden key: %v", err)
		}
		r.release(<-all[2])
	})
}

// A lost batch, or a lost reply to it, is as harmless as that of a single call: each call is tried again.
func TestBatch_Lost(t *testing.T) {
	t.Parallel()
	batch := func(c redistest.Chunk) bool { return bytes.Contains(c.Data, []byte(script.Batch.SHA)) }
	for what, rule := range map[string]redistest.Rule{
		"reply cut":       redistest.ReplyTo(redistest.Cut, batch, redistest.Nth(1)),
		"reply dropped":   redistest.ReplyTo(redistest.Drop, batch, redistest.Nth(1)),
		"request cut":     redistest.When(redistest.Up, redistest.Cut, batch, redistest.Nth(1)),
		"request dropped": redistest.When(redistest.Up, redistest.Drop, batch, redistest.Nth(1)),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRigWithin(t, 500*time.Millisecond)
				r.rdb.ScriptLoad(t.Context(), script.Batch.Source)
				names := []string{"job:1", "job:2", "job:3", "job:4"}
				all := r.holdTryLock(t.Context(), names...)
				r.proxy.SetRule(rule)
				r.resume()
				for i, ch := range all {
					o := <-ch
					if o.err != nil {
						t.Errorf("%s: %v", names[i], o.err)
						continue
					}
					if h := r.rdb.HGetAll(t.Context(), names[i]).Val(); h[o.l.Owner()] != "1" || len(h) != 2 {
						t.Errorf("%s: %v in Redis, want %s once", names[i], h, o.l.Owner())
					}
					r.release(o)
				}
				for _, name := range names {
					if !r.gone(name) {
						t.Errorf("%s is still held", name)
					}
				}
			})
		})
	}
}

// A call whose caller leaves before the batch isn't sent. What one leaves behind that leaves meanwhile is removed. The others don't notice.
func TestBatch_CallersLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.rdb.ScriptLoad(t.Context(), script.Batch.Source)
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithCancel(t.Context())
		defer leaveLate()
		leavers := r.holdTryLock(early, "job:early")
		rest := append(r.tryLock(late, "job:late"), r.tryLock(t.Context(), "job:stays", "job:stays-too")...)

		leaveEarly()
		if err := (<-leavers[0]).err; !errors.Is(err, context.Canceled) {
			t.Errorf("the first to leave: %v", err)
		}
		if n := r.pending(); n != 3 {
			t.Errorf("%d calls are pending, want 3", n)
		}
		r.proxy.SetRule(redistest.ReplyTo(redistest.Hold, func(c redistest.Chunk) bool {
			if bytes.Contains(c.Data, []byte("job:early")) {
				t.Error("the call of a caller that left was sent")
			}
			return bytes.Contains(c.Data, []byte(script.Batch.SHA))
		}, redistest.Nth(1)))
		r.resume()
		r.proxy.AwaitHeld(t, 1)
		leaveLate()
		if err := (<-rest[0]).err; !errors.Is(err, context.Canceled) {
			t.Errorf("the second to leave: %v", err)
		}
		if r.gone("job:late") {
			t.Fatal("nothing is left to be cleaned up")
		}
		r.proxy.SetRule(nil)
		r.proxy.Release()
		r.release(<-rest[1])
		r.release(<-rest[2])
		r.eventually(func() bool { return r.gone("job:late") })
	})
}

// The caller of an inline call notices the end of its ctx only after the call, but soon.
func TestInline_CtxEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.c = openFor(t, r.srv.Client(t, func(o *redis.Options) {
			o.Addr, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = r.proxy.Addr(), time.Minute, time.Minute, true
		}))
		mayInline := func() bool {
			return r.c.dispatcher.MaySendInline(t.Context(), r.c.dispatcher.Node("job"), time.Minute)
		}
		r.eventually(func() bool { // on a busy machine it takes some calls until one is quick
			l, err := r.c.Mutex("job").TryLock(t.Context())
			r.release(outcome{l, err})
			return mayInline()
		})
		synctest.Wait() // until no worker is busy with the last of them
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.proxy.SetRule(redistest.When(redistest.Up, redistest.Drop, func(redistest.Chunk) bool {
			time.AfterFunc(5*time.Millisecond, cancel) // when it is sent
			return true
		}))
		done := make(chan outcome, 1)
		start := time.Now()
		go func() {
			l, err := r.c.Mutex("job").TryLock(ctx)
			done <- outcome{l, err}
		}()
		err := (<-done).err
		if took := time.Since(start); took > 10*time.Second { // go-redis would wait for a minute
			t.Errorf("it took %v", took)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if mayInline() {
			t.Error("the next call would be inline again")
		}
	})
}
