package lock

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// A batch costs one command, and each of its calls has its own outcome, whatever the others are: what differs between them stays with its call.
func TestBatch_OutcomePerCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		ctx := t.Context()
		r.rdb.Set(ctx, "job:string", "x", 0)
		r.rdb.HSet(ctx, "job:java", "thread:1", 2)
		held := []outcome{tried(ctx, r.c.Mutex("job:{mine}")), tried(ctx, r.c.Mutex("job:lost"))}
		r.rdb.Del(ctx, "job:lost")
		r.rdb.HSet(ctx, "job:lost", "thread:1", 1)

		r.hold()
		var taken []chan outcome
		released := make([]chan error, len(held))
		acquire := func(name string, opts ...LockOption) { taken = append(taken, r.begun(ctx, r.c.Mutex(name, opts...))) }
		release := func(i int) {
			released[i] = make(chan error, 1)
			r.start(func() { released[i] <- held[i].l.Release(ctx) })
		}
		acquire("job:string")
		acquire("job:short", WithFixedLease(10*time.Minute))
		release(0)
		acquire("job:java")
		acquire("job:short")
		acquire("job:short", WithRedissonTokens()) // which draws its token from another counter
		release(1)
		acquire("job:{long}", WithFixedLease(20*time.Minute))
		before := r.srv.Commands(t)["evalsha"]
		r.resume()
		out := r.all(taken)
		mine, lost := <-released[0], <-released[1]
		if sent := r.srv.Commands(t)["evalsha"] - before; sent != 1 { // the batch wasn't known yet: EVALSHA, then EVAL
			t.Errorf("%d commands, want 1", sent)
		}

		if mine != nil || !r.gone("job:{mine}") || !errors.Is(lost, ErrLost) || r.gone("job:lost") {
			t.Errorf("Release: %v; of a lock that somebody else has taken: %v", mine, lost)
		}
		if err := out[0].err; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("a key that is no lock: %v", err)
		}
		for i, name := range map[int]string{1: "job:short", 5: "job:{long}"} {
			full := time.Duration(10+10*(i/5)) * time.Minute
			if left := r.rdb.PTTL(ctx, name).Val(); left > full || left < full-30*time.Second {
				t.Errorf("%s is leased for %v, want %v", name, left, full)
			}
			r.wantHeld(name, out[i])
		}
		for i, owner := range map[int]string{2: "thread:1", 3: out[1].l.Owner(), 4: out[1].l.Owner()} {
			var heldErr *HeldError
			if err := out[i].err; !errors.As(err, &heldErr) || heldErr.Owner != owner {
				t.Errorf("a lock that %s holds: %v", owner, err)
			}
		}
		r.release(out[1])
		r.release(out[5])
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

// The loss of a batch, or of the reply to it, is as harmless as that of a single call: each call is tried again.
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
					if r.release(o); !r.gone(names[i]) {
						t.Errorf("%s is still held", names[i])
					}
				}
			})
		})
	}
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
			r.release(tried(t.Context(), r.c.Mutex("job")))
			return mayInline()
		})
		synctest.Wait() // until no worker is busy with the last of them
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.proxy.SetRule(redistest.When(redistest.Up, redistest.Drop, func(redistest.Chunk) bool {
			time.AfterFunc(5*time.Millisecond, cancel) // when it is sent
			return true
		}))
		start := time.Now()
		if _, err := r.c.Mutex("job").TryLock(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took > 10*time.Second { // go-redis would wait for a minute
			t.Errorf("it took %v", took)
		}
		if mayInline() {
			t.Error("the next call would be inline again")
		}
	})
}
