package lock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What read-write locks keep in Redis, beside holders of other programs and those that died.

const (
	javaThread = "8f1b8d3e-5c6f-4f0c-9d8a-0c1f6f0a7b11:42"
	deadReader = "gone:0123456789abcdef-7"
)

// enter puts a holder into the hash, as another program does. Without leases it has no marks.
func (r *rwRig) enter(mode, holder string, leases ...time.Duration) {
	r.t.Helper()
	r.must(r.rdb.HSet(r.ctx(), r.key(), "mode", mode, holder, max(len(leases), 1)))
	for i, lease := range leases {
		r.must(r.rdb.Set(r.ctx(), fmt.Sprintf("{%s}:%s:rwlock_timeout:%d", r.key(), holder, i+1), 1, lease))
	}
}

// lasts sets the time of the hash.
func (r *rwRig) lasts(d time.Duration) { r.must(r.rdb.PExpire(r.ctx(), r.key(), d)) }

// within fails the test unless a key has more than least and at most most to live.
func (r *rwRig) within(key string, least, most time.Duration) {
	r.t.Helper()
	if got := r.pttl(key); got <= least || got > most {
		r.t.Fatalf("%s has %v to live, want %v to %v", key, got, least, most)
	}
}

// The hash lives as long as the longest lease, whoever renews, and no longer.
func TestRWHashLivesAsLongAsTheLongestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const short, renewed, long = 1500 * time.Millisecond, 1700 * time.Millisecond, 30 * time.Second
		r := newRWRig(t)
		c := r.client(lock.WithLease(short))
		brief := try(t, c.RWMutex("job").RLocker())
		r.within(r.key(), 0, short)
		lasting := try(t, c.RWMutex("job", lock.WithFixedLease(long)).RLocker())
		always(t, renewed, func() bool { return r.pttl(r.key()) > long/2 && brief.Err() == nil })
		r.within(r.mark(brief.Owner()), 0, short)
		second := try(t, c.RWMutex("job").RLocker())
		r.within(r.key(), long/2, long) // nor does a grant shorten it
		free(t, second)
		r.within(r.key(), long/2, long)
		free(t, lasting)
		r.within(r.key(), 0, short)
		always(t, renewed, func() bool { return r.pttl(r.key()) > 0 && brief.Err() == nil })
		free(t, brief)

		w := try(t, c.RWMutex("job", lock.WithFixedLease(long)))
		rd := enter(t, w.Context(), c.RWMutex("job").RLocker())
		free(t, w)
		r.within(r.key(), 0, short)
		always(t, renewed, func() bool { return r.pttl(r.key()) > 0 && rd.Err() == nil })
		free(t, rd)
		r.nothing()
	})
}

// A holder whose lease ran out is none, though others keep the hash alive. Redisson's are judged as Redisson does.
func TestRWDeadHolders(t *testing.T) {
	t.Parallel()
	const deadWriter = deadReader + ":write"
	for name, test := range map[string]func(t *testing.T, r *rwRig, c *lock.Client){
		"only dead readers": func(t *testing.T, r *rwRig, c *lock.Client) {
			r.enter("read", deadReader)
			r.enter("read", javaThread)
			r.lasts(far)
			w := try(t, c.RWMutex("job"))
			r.holds("write", w)
			free(t, w)
		},
		"the last live reader leaves": func(t *testing.T, r *rwRig, c *lock.Client) {
			live := try(t, c.RWMutex("job").RLocker())
			r.enter("read", deadReader)
			next := begin(r.ctx(), r.client().RWMutex("job"))
			r.enlisted(1)
			r.holds("read", live) // the writer has thrown the other out
			r.enter("read", javaThread)
			free(t, live)
			free(t, granted(t, next))
		},
		"a dead writer, and the reader under it": func(t *testing.T, r *rwRig, c *lock.Client) {
			live := try(t, c.RWMutex("job").RLocker())
			r.enter("write", deadWriter)
			other := try(t, r.client().RWMutex("job").RLocker())
			r.holds("read", live, other)
			freeAll(t, []*lock.Lease{live, other})
		},
		"a dead writer alone": func(t *testing.T, r *rwRig, c *lock.Client) {
			r.enter("write", deadWriter)
			r.lasts(far)
			free(t, try(t, c.RWMutex("job").RLocker()))
		},
		"a live writer of Redisson": func(t *testing.T, r *rwRig, c *lock.Client) {
			// A thread's id may be any number, such as a random one that a program has chosen.
			for _, writer := range []string{javaThread + ":write", strings.TrimSuffix(javaThread, "42") + "-42:write"} {
				r.enter("write", writer)
				r.lasts(far)
				for _, lk := range []lock.Locker{c.RWMutex("job"), c.RWMutex("job").RLocker()} {
					var held *lock.HeldError
					if err := refused(t, lk); !errors.As(err, &held) || held.Owner != writer || held.Remaining < far-time.Minute {
						t.Errorf("%s: %v", writer, err)
					}
				}
				r.must(r.rdb.Del(r.ctx(), r.key()))
			}
		},
		"a live reader of Redisson, entered twice": func(t *testing.T, r *rwRig, c *lock.Client) {
			brief := try(t, c.RWMutex("job", lock.WithFixedLease(patience)).RLocker())
			r.enter("read", javaThread, time.Minute, time.Hour)
			r.must(r.rdb.Del(r.ctx(), r.mark(javaThread))) // of its first entry: that lease was shorter
			_ = refused(t, c.RWMutex("job"))
			if h, err := c.RWMutex("job").Inspect(r.ctx()); err != nil || h.Owner != javaThread || h.Count != 2 || h.Token != 0 || h.Readers != 2 {
				t.Errorf("%+v, %v", h, err)
			}
			r.must(r.rdb.Set(r.ctx(), r.mark(javaThread), 1, time.Minute))
			if h, err := c.RWMutex("job").Inspect(r.ctx()); err != nil || h.Owner != javaThread || h.Token != 0 {
				t.Errorf("%+v, %v", h, err)
			}
			free(t, brief)
			r.within(r.key(), 59*time.Minute, time.Hour)
			if e := r.entry(); len(e) != 2 || e[javaThread] != "2" {
				t.Errorf("the hash is %v", e)
			}
			r.must(r.rdb.Del(r.ctx(), r.key()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRWRig(t)
				test(t, r, r.client())
			})
		})
	}
}

// A forced unlock frees all holders, and tells each of ours.
func TestRWForceUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		s := newScope(t)
		a, b := r.client(), s.open(t, r.dial(), lock.WithKeyPrefix(r.prefix), lock.WithLease(far))
		force := func(want bool) {
			t.Helper()
			if was, err := b.RWMutex("job").ForceUnlock(r.ctx()); err != nil || was != want {
				t.Fatalf("%v, %v", was, err)
			}
		}
		w := try(t, a.RWMutex("job"))
		rd := enter(t, w.Context(), a.RWMutex("job", lock.WithLifetime(r.ctx())).RLocker()) // else the loss of w may cancel it first
		eventually(t, patience, func() bool { return len(r.rdb.PubSubChannels(r.ctx(), r.prefix+"lockdog:control:*").Val()) == 1 })
		force(true)
		for _, l := range []*lock.Lease{w, rd} {
			await(t, "Done", l.Ended())
			mustMatch(t, l.Err(), lock.ErrLost)
		}
		if records := s.records(t, telemetry.LogForced); len(records) != 1 || records[0]["kind"] != "write" ||
			!slices.Contains([]any{w.Owner() + ", " + rd.Owner(), rd.Owner() + ", " + w.Owner()}, records[0]["owner"]) {
			t.Errorf("of %s and %s: records %v", w.Owner(), rd.Owner(), records)
		}
		force(false)
		r.nothing()
	})
}

// A renewal doesn't bring back a mark that somebody deleted: that holder may have been thought dead already.
func TestRWDeletedMarkIsALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		rd := try(t, r.client(lock.WithLease(1500*time.Millisecond)).RWMutex("job").RLocker())
		r.must(r.rdb.Del(r.ctx(), r.mark(rd.Owner())))
		mustBeLost(t, rd, lock.CauseUnreachable)
		if !strings.Contains(rd.Err().Error(), "the mark of the holder is missing") {
			t.Errorf("%v; it should say why", rd.Err())
		}
		r.nothing()
	})
}

// Every script may run twice, and an acquire that is late writes nothing at all.
func TestRWScriptsRunTwiceOrLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		keys := func(owner string) []string {
			return []string{r.key(), r.prefix + "counter", r.writers(), r.turn(), r.mark(owner), "{" + r.key() + "}:" + owner + ":rwlock_timeout:0"}
		}
		run := func(script, owner string, args ...any) []any {
			t.Helper()
			cmd := r.rdb.Eval(r.ctx(), lock.Scripts[script].Source, keys(owner), append([]any{owner}, args...)...)
			r.must(cmd)
			return cmd.Val().([]any)
		}
		const w, rd = "me:0123456789abcdef-1:write", "me:0123456789abcdef-2"
		const late = 1
		acquire := func(owner string, notAfter, keep int) []any {
			t.Helper()
			if owner == w {
				return run("write_acquire", w, 60000, notAfter, "", keep)
			}
			return run("read_acquire", rd, 60000, notAfter, "", "", 0)
		}
		untouched := func(what string) {
			t.Helper()
			if keys := r.rdb.Keys(r.ctx(), "*"+r.prefix+"*").Val(); len(keys) > 0 {
				t.Fatalf("%s: %q", what, keys)
			}
		}
		for _, owner := range []string{w, rd} {
			release := map[string]string{w: "write_release", rd: "read_release"}[owner]
			if got := acquire(owner, late, 0); got[0] != int64(2) {
				t.Fatalf("%s, late: %v", owner, got)
			}
			untouched("late")
			first, second := acquire(owner, 0, 0), acquire(owner, 0, 0)
			if first[0] != int64(1) || second[0] != int64(1) || first[2].(int64) >= second[2].(int64) {
				t.Fatalf("%s, twice: %v, then %v", owner, first, second)
			}
			if e := r.entry(); len(e) != 2 || e[owner] != "1" {
				t.Fatalf("the hash is %v", e)
			}
			const ahead = 1 << 52 // of the clock, in µs
			r.must(r.rdb.Set(r.ctx(), r.prefix+"counter", ahead, 0))
			if got := acquire(owner, 0, 0); got[2] != int64(ahead+1) {
				t.Fatalf("%s, after token %d: %v", owner, int64(ahead), got)
			}
			for i, want := range []int64{1, 0, 0} {
				if got := run(release, owner, "channel", "publish"); got[0] != want {
					t.Fatalf("%s, release %d: %v", owner, i, got)
				}
			}
			r.must(r.rdb.Del(r.ctx(), r.prefix+"counter"))
			untouched("released")
		}
		// A writer that is refused enlists, but not when it is late.
		acquire(rd, 0, 0)
		if got := acquire(w, late, 60000); got[0] != int64(0) || r.rdb.Exists(r.ctx(), r.writers()).Val() != 0 {
			t.Fatalf("late: %v, enlisted", got)
		}
		acquire(w, 0, 60000)
		acquire(w, 0, 60000)
		r.enlisted(1)
		r.within(r.writers(), 59*time.Second, time.Minute)
		for range 2 {
			if got := run("write_release", w, "channel", "publish"); got[0] != int64(0) || got[2] != int64(1) {
				t.Fatalf("given up: %v", got)
			}
		}
		r.enlisted(0)
		run("read_release", rd, "channel", "publish")
	})
}
