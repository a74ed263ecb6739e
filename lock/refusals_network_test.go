package lock_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What callers see when something that answers is no Redis, or nothing answers.

// garbler puts garbage in the place of answers to some scripts.
type garbler struct{ spoil atomic.Pointer[spoiling] }

// spoiling says what a garbler does.
type spoiling struct {
	sha, garbage string // the script, and what it is answered
	left         atomic.Int64
}

// into has a client dial through it.
func (g *garbler) into(o *redis.Options) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &garbled{Conn: conn, by: g}, nil
	}
}

// answer puts garbage in the place of so many answers to a script.
func (g *garbler) answer(sha, garbage string, answers int64) {
	s := &spoiling{sha: sha, garbage: garbage}
	s.left.Store(answers)
	g.spoil.Store(s)
}

type garbled struct {
	net.Conn
	by  *garbler
	now atomic.Pointer[spoiling] // the next answer
}

func (c *garbled) Write(request []byte) (int, error) {
	c.now.Store(nil)
	if s := c.by.spoil.Load(); s != nil && bytes.Contains(request, []byte(s.sha)) && s.left.Add(-1) >= 0 {
		c.now.Store(s)
	}
	return c.Conn.Write(request)
}

func (c *garbled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if s := c.now.Swap(nil); s != nil && err == nil {
		return copy(b, s.garbage), nil
	}
	return n, err
}

// One unreadable answer is retried. A call that gets only such answers returns an error, and takes no lock.
func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	for name, garbage := range map[string]string{
		"no RESP":            "HTTP/1.1 400 Bad Request\r\n\r\n",
		"a number":           ":1\r\n",
		"nothing":            "$-1\r\n",
		"an empty list":      "*0\r\n",
		"a list of text":     "*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n",
		"a list of lists":    "*3\r\n*0\r\n*0\r\n*0\r\n",
		"an unknown outcome": "*3\r\n:7\r\n:7\r\n:7\r\n",
		"a list without end": "*3\r\n:1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				var g garbler
				shas := scriptSHAs()
				s := newScope(t)
				c := s.open(t, srv.Client(t, answerWithin(150*time.Millisecond), g.into),
					lock.WithLease(1500*time.Millisecond))
				m := c.Mutex("job")
				free(t, try(t, m))

				g.answer(shas["acquire"], garbage, 1)
				l := try(t, m)
				g.answer(shas["renew"], garbage, 1)
				start := l.Deadline()
				eventually(t, patience, func() bool {
					if err := l.Err(); err != nil {
						t.Fatalf("after one unreadable renewal: %v", err)
					}
					return l.Deadline().After(start)
				})
				g.answer(shas["release"], garbage, 1)
				free(t, l)

				// From now on there are no other answers. What Redis granted nevertheless isn't left for a lease.
				g.answer(shas["acquire"], garbage, 1<<30)
				if l, err := c.Mutex("job", lock.WithLease(lock.DefaultLease)).TryLock(t.Context()); err == nil {
					t.Errorf("TryLock gave %s, token %d", l.Owner(), l.Token())
				} else {
					mustMention(t, err, "job", "")
				}
				if n := s.sum(t, telemetry.MetricErrors, "lockdog.operation=acquire"); n < 2 {
					t.Errorf("errors %v", s.series(t, telemetry.MetricErrors))
				}
				direct := srv.Client(t)
				eventually(t, patience, func() bool { return direct.Exists(t.Context(), "job").Val() == 0 })
			})
		})
	}
}

// A server that accepts and never answers.
func TestServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t, answerWithin(100*time.Millisecond))
		s := newScope(t)
		c := s.open(t, rdb)
		srv.Pause(t)
		mustMention(t, errorOf(c.Mutex("job").TryLock(t.Context())), "job", "timeout")
		got := begin(t.Context(), c.Mutex("job"))
		time.Sleep(150 * time.Millisecond) // after its first try it is to be seen among those who wait
		all := c.Leases()
		if len(all) != 1 || all[0].State != lock.StateWaiting || all[0].Name != "job" || s.sum(t, telemetry.MetricWaiting) != 1 {
			t.Errorf("waits: %+v", all)
		}
		mustMention(t, (<-got).err, "job", "timeout")
		if n := len(c.Leases()); n != 0 || s.sum(t, telemetry.MetricWaiting) != 0 {
			t.Errorf("%d wait yet", n)
		}
		mustMention(t, errorOf(c.Mutex("job").Inspect(t.Context())), "job", "timeout")
		if n := s.sum(t, telemetry.MetricErrors, "error.type=timeout"); n != s.sum(t, telemetry.MetricErrors) || n < 6 {
			t.Errorf("errors %v, want those of each try, type timeout", s.series(t, telemetry.MetricErrors))
		}
		must(t, "Close", c.Close(t.Context()))
		srv.Resume(t)
	})
}

// The connection of the subscription is dead, and nobody says so. Waiters get in by their timers; the connection is given up
// after 6 s, and the next one works.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb, wire := throughProxy(t, srv)
		s := newScope(t)
		// Without the wait graph, whose calls the wire could take for what is to be dropped.
		c, other := s.open(t, rdb, lock.WithWaitGraph(0)), newScope(t).open(t, srv.Client(t))
		short := try(t, other.Mutex("job:short", lock.WithLease(ttl)))
		long := try(t, other.Mutex("job:long"))
		second := begin(t.Context(), c.Mutex("job:long"))
		first := begin(t.Context(), c.Mutex("job:short"))
		asleep(t, c, 2)

		dead := make(map[int]bool)
		wire.set(func(ch redistest.Chunk) redistest.Verdict {
			data := bytes.ToLower(ch.Data) // of the server: what a script's source says on its way there is none
			if ch.Dir == redistest.Down && (bytes.Contains(data, []byte("message")) || bytes.Contains(data, []byte("pong"))) {
				if len(dead) == 0 {
					dead[ch.Conn] = true
				}
			}
			if dead[ch.Conn] {
				return redistest.Drop
			}
			return redistest.Pass
		})
		began := time.Now()
		free(t, short)
		free(t, granted(t, first))
		if took := time.Since(began); took > ttl {
			t.Errorf("the waiter came in after %v; the holder's lease was %v", took, ttl)
		}
		eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricPubSubReconnects) == 1 })
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("reconnected after %v already", took)
		}
		if n := s.refused(t, "subscribe", "timeout"); n != 1 {
			t.Errorf("errors %v, want one of the subscription", s.series(t, telemetry.MetricErrors))
		}
		asleep(t, c, 1)
		freed := time.Now()
		free(t, long)
		free(t, granted(t, second)) // by a message: DefaultLease is longer
		if took := time.Since(freed); took > idle {
			t.Errorf("the next waiter came in after %v", took)
		}
	})
}

// Where nobody listens, no command is sent, and none is counted: Redis knows of none either.
func TestCommandsThatWereNotSentAreNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, s := redistest.StartFake(t), newScope(t)
		srv.Kill(t)
		mustMention(t, errorOf(s.open(t, srv.Client(t)).Mutex("job").TryLock(t.Context())), "job", "refused")
		if n := s.refused(t, "acquire", "network"); n == 0 || float64(n) != s.sum(t, telemetry.MetricErrors) {
			t.Errorf("errors %v, want those of each try, type network", s.series(t, telemetry.MetricErrors))
		}
		if n := s.sum(t, telemetry.MetricCommands); n != 0 {
			t.Errorf("%v commands are counted", n)
		}
	})
}

// Who waits polls until its subscription is confirmed: the connection may have died in silence before, when nobody was there to mind.
func TestSubscriptionIsNeverConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb, e := throughProxy(t, sp)
		s := newScope(t)
		c := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()))
		other := newScope(t).open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(far))
		free(t, try(t, c.Mutex("job"))) // the connection is there
		e.set(redistest.When(redistest.Up, redistest.Drop, func(c redistest.Chunk) bool {
			return bytes.Contains(bytes.ToLower(c.Data), []byte("subscribe"))
		}))
		l := try(t, other.Mutex("job"))
		next := begin(t.Context(), c.Mutex("job"))
		waiting(t, c, 1)
		free(t, l)
		start := time.Now()
		free(t, granted(t, next))
		if took := time.Since(start); took > patience/3 {
			t.Errorf("it took %v", took)
		}
		if n := s.sum(t, telemetry.MetricTakeovers); n > 0 { // no message was missed: none could be heard yet
			t.Errorf("%v takeovers", n)
		}
		e.set(nil)
	})
}

// Leases says why a waiter gets no answer, until it gets one.
func TestWaiterWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		l := try(t, newScope(t).open(t, srv.Client(t)).Mutex("job"))
		p := redistest.NewProxy(t, srv.Addr())
		c := newScope(t).open(t, srv.Client(t, func(o *redis.Options) { o.Addr = p.Addr() }))
		waiter := begin(t.Context(), c.Mutex("job"))
		asleep(t, c, 1)
		lastError := func() error { return c.Leases()[0].LastError }
		if err := lastError(); err != nil {
			t.Errorf("before: %v", err)
		}
		p.Refuse(t)
		p.CutAll()
		eventually(t, patience, func() bool { return errors.Is(lastError(), syscall.ECONNREFUSED) })
		p.Accept(t)
		eventually(t, patience, func() bool { return lastError() == nil })
		free(t, l)
		free(t, granted(t, waiter))
	})
}

// Without a connection a call whose ctx can't end takes no longer than the lease, though go-redis would wait for one, or dial, for longer.
func TestCallsWithoutConnectionEndWithTheLease(t *testing.T) {
	t.Parallel()
	const lease = 11 * time.Second
	// release gives a lock back when all connections are lost, which must fail.
	release := func(t *testing.T, rdb *redis.Client, lose func()) (l *lock.Lease) {
		t.Helper()
		c := newScope(t).open(t, rdb, lock.WithFixedLease(lease))
		for range 20 { // once Redis was quick, callers send their calls themselves
			free(t, try(t, c.Mutex("job")))
		}
		l = try(t, c.Mutex("job"))
		lose()
		if err := l.Release(context.Background()); err == nil {
			t.Error("Release: no error")
		}
		return l
	}
	t.Run("the pool is empty", func(t *testing.T) {
		t.Parallel()
		// Not in a bubble: a wait for a connection of the pool would stop its clock. PoolTimeout is longer than the test may last.
		rdb := redistest.Start(t).Client(t, func(o *redis.Options) { o.PoolSize, o.MaxActiveConns, o.PoolTimeout = 1, 1, time.Hour })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		release(t, rdb, func() {
			go rdb.BLPop(ctx, time.Hour, "nothing")
			eventually(t, patience, func() bool { return rdb.PoolStats().IdleConns == 0 })
		})
	})
	t.Run("nobody answers dials", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			p := redistest.NewProxy(t, srv.Addr())
			var dead atomic.Bool
			rdb := srv.Client(t, func(o *redis.Options) {
				dial := o.Dialer
				o.Addr = p.Addr()
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if dead.Load() {
						<-ctx.Done() // of DialTimeout
						return nil, context.DeadlineExceeded
					}
					return dial(ctx, network, addr)
				}
			})
			l := release(t, rdb, func() {
				dead.Store(true)
				p.CutAll()
			})
			if longer := time.Since(l.Deadline()); longer > 0 {
				t.Errorf("Release took %v longer than the lease", longer)
			}
			time.Sleep(time.Minute) // until go-redis has given up, too
		})
	})
}
