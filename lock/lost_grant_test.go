package lock_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// idle is for how long a lock may be free while somebody waits for it, after any fault but a stopped or cut-off process.
const idle = 100 * time.Millisecond

// isMessage is a condition for rules: a message that was published.
var isMessage = redistest.Contains("$7\r\nmessage\r\n")

// grants is a condition for rules: the message that grants somebody the lock, whose text has two line feeds.
func grants(c redistest.Chunk) bool {
	return isMessage(c) && bytes.Count(c.Data, []byte("\n"))-bytes.Count(c.Data, []byte("\r\n")) == 2
}

// A release grants the lock to a client that doesn't hear of it. The lock doesn't wait until the grant is over.
func TestLostGrantIsFound(t *testing.T) {
	t.Parallel()
	cut := func(_ *lock.Client, p *redistest.Proxy) { p.CutAll() }
	for name, tt := range map[string]struct {
		leaves bool // the waiter gives up before that arrives
		behind bool // ... and another of its client waits
		lose   func(*lock.Client, *redistest.Proxy)
	}{
		"the subscription is cut":                                 {false, false, cut},
		"the subscription is cut, and the waiter has left":        {true, false, cut},
		"the subscription is cut, and another waits in its place": {true, true, cut},
		"the client is closed": {true, false, func(c *lock.Client, p *redistest.Proxy) {
			go closeSoon(c)
			time.Sleep(time.Second)
			p.Release()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for range 10 { // one release of many wakes all
					if lostGrantIsFound(t, tt.leaves, tt.behind, tt.lose) {
						return
					}
				}
				t.Error("no release has granted the lock")
			})
		})
	}
}

func lostGrantIsFound(t *testing.T, leaves, behind bool, lose func(*lock.Client, *redistest.Proxy)) (granted bool) {
	t.Helper()
	srv := redistest.StartFake(t)
	holder, other := open(t, srv.Client(t)), open(t, srv.Client(t))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	p := redistest.NewProxy(t, srv.Addr())
	p.SetRule(redistest.When(redistest.Down, redistest.Hold, grants, redistest.Nth(1)))
	c := openBehind(t, srv, p)
	held := try(t, holder.Mutex("job"))
	var freed time.Time
	var all sync.WaitGroup
	wait := func(ctx context.Context, c *lock.Client) (ended chan struct{}) {
		ended = make(chan struct{})
		all.Go(func() {
			l, err := c.Mutex("job", lock.WithLifetime(t.Context())).Lock(ctx)
			close(ended)
			if err != nil {
				return // it has left
			}
			if stood := time.Since(freed); stood > idle {
				t.Errorf("the lock was free for %v", stood)
			}
			freed = time.Now()
			free(t, l)
		})
		synctest.Wait()
		return ended
	}
	first := wait(ctx, c)
	if behind {
		wait(t.Context(), c)
	}
	wait(t.Context(), other)
	freed = time.Now()
	free(t, held)
	synctest.Wait()
	if granted = p.Held() > 0; granted {
		if leaves {
			leave()
			<-first
		}
		lose(c, p)
	}
	all.Wait()
	time.Sleep(5 * time.Second) // a client that is closed meanwhile has closed
	closeSoon(holder)
	closeSoon(other)
	closeSoon(c)
	return granted
}

// A waiter gets the lock while its slot moves, and its entry stays in the wait set, which is still at another node. A
// later release grants it the lock once more. That must not delay those who wait then.
func TestGrantToWhomHasHadIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb, set := srv.Client(t), "lockdog_wait:{job}"
		loadScripts(t, rdb, "acquire", "release")
		var moving atomic.Bool
		holder, c := open(t, srv.Client(t)), openTapped(t, srv, fakeredis.Tap{Up: func(cmd redis.Cmder) error {
			if moving.Load() && isEval(cmd) && cmd.Args()[2] != 1 {
				return redisfail.ReplyError("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return nil
		}})
		try(t, holder.Mutex("job", lock.WithFixedLease(time.Minute)))
		first := begin(t.Context(), c.Mutex("job"))
		inSet(t, srv, "job", 1)
		entry := rdb.ZRange(t.Context(), set, 0, -1).Val()[0]
		moving.Store(true)
		del(t, srv, "job")
		rdb.Publish(t.Context(), "redisson_lock__channel:{job}", "0")
		l := granted(t, first)
		moving.Store(false)
		free(t, l)

		rdb.ZAdd(t.Context(), set, redis.Z{Score: float64(time.Now().UnixMicro()), Member: entry})
		held := try(t, holder.Mutex("job"))
		second := begin(t.Context(), c.Mutex("job"))
		inSet(t, srv, "job", 2)
		listener := rdb.Subscribe(t.Context(), "redisson_lock__channel:{job}") // as many as there are entries
		defer func() { _ = listener.Close() }()
		synctest.Wait()
		freed := time.Now()
		free(t, held)
		l = granted(t, second)
		if stood := time.Since(freed); stood > idle {
			t.Errorf("the lock was free for %v", stood)
		}
		free(t, l)
	})
}

// A client that gets its messages late misses the grants that are on their way, and then no more: from then on releases
// wake it instead, and others ask if it doesn't.
func TestSlowClientLetsGrantsPassOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const late, lasts, hold = 4 * time.Second, 20 * time.Second, 100 * time.Millisecond
		srv := redistest.StartFake(t)
		p := redistest.NewProxy(t, srv.Addr())
		read := time.Now() // when a message is read that is late by 4 s; those behind it are late by less
		p.SetRule(func(c redistest.Chunk) redistest.Verdict {
			if c.Dir == redistest.Up || !isMessage(c) || time.Since(read) <= late {
				return redistest.Pass
			}
			read = time.Now().Add(late)
			return redistest.Delay(late)
		})
		clients := []*lock.Client{openBehind(t, srv, p), open(t, srv.Client(t)), open(t, srv.Client(t))}
		var mu sync.Mutex
		var stalls []time.Duration // when a lock that was awaited had been free for too long
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), lasts)
		defer stop()
		var all sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			freed := time.Now()
			for _, c := range clients {
				for range 2 {
					all.Go(func() {
						for ctx.Err() == nil {
							l, err := c.Mutex(name, lock.WithLifetime(t.Context())).Lock(ctx)
							if err != nil {
								return
							}
							mu.Lock()
							if time.Since(freed) > idle {
								stalls = append(stalls, time.Since(began))
							}
							mu.Unlock()
							time.Sleep(hold)
							mu.Lock()
							freed = time.Now() // before another one can have it
							mu.Unlock()
							free(t, l)
						}
					})
				}
			}
		}
		all.Wait()
		for _, at := range stalls { // others that were granted what it hasn't read yet, when the first one was
			if at > stalls[0]+late+idle {
				t.Errorf("a lock stood still until %v, and the first one until %v", at, stalls[0])
			}
		}
		if len(stalls) == 0 {
			t.Error("nothing was ever late")
		}
	})
}
