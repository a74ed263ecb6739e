//go:build chaos

package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// clientEnv makes this binary a client process.
const clientEnv = "LOCKDOG_CHAOS_CLIENT"

const poolSize = 10

// waitGraphAfter is short, as few waits here are long.
const waitGraphAfter = 100 * time.Millisecond

// childMain is the main function of a child process, which run runs.
func childMain(run func(input *bufio.Scanner) error) {
	if err := run(bufio.NewScanner(os.Stdin)); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// readOrders reads the orders of a child process.
func readOrders(input *bufio.Scanner) (o orders, err error) {
	if !input.Scan() {
		return o, errors.New("no orders")
	}
	if err := json.Unmarshal(input.Bytes(), &o); err != nil {
		return o, fmt.Errorf("orders: %w", err)
	}
	return o, nil
}

// client is one process that contends.
type client struct {
	orders
	diary  *diary
	rdbs   []redis.UniversalClient
	all    []*lock.Client // one for each of them
	locks  *lock.Client   // the first
	quorum *lock.Quorum   // of them all, where they are several

	settling atomic.Bool
	settle   chan struct{} // closed then
	warm     sync.Once
	holds    atomic.Bool // see sayHold
	workers  sync.WaitGroup
	stat     history.Event
	lag      lag
	ended    map[lock.EndedLease]bool // see noteEnded
}

// runClient runs a client until it is told to close.
func runClient(input *bufio.Scanner) (err error) {
	c := &client{settle: make(chan struct{}), ended: make(map[lock.EndedLease]bool)}
	if c.orders, err = readOrders(input); err != nil {
		return err
	}
	if c.diary, err = openDiary(c.History, c.Proc); err != nil {
		return err
	}
	c.stat = history.Event{What: history.Stat, Counts: map[string]float64{history.StatStart: float64(runtime.NumGoroutine())}}
	quiet := goleak.IgnoreCurrent()

	stopMeasuring := c.lag.measure()
	counts := newCounts()
	if err := c.open(counts); err != nil {
		return err
	}
	c.stat.Counts[history.StatClients] = float64(len(c.all))
	stopWatching, stopKeeping, stopTelling, stopEnded := c.watchGoroutines(), c.keepPermits(), c.tellWhere(), c.watchEnded()
	for i := range c.Workers {
		w, err := newWorker(c, i)
		if err != nil {
			return err
		}
		c.workers.Go(w.run)
	}
	if err := c.obey(input, saySettle); err != nil {
		return err
	}
	stopWatching()
	settled := time.Now()
	c.settling.Store(true)
	close(c.settle)
	c.workers.Wait()
	stopKeeping()
	stopTelling()
	stopEnded()
	c.diary.note(history.Event{At: now(), What: history.Idle})
	c.stat.Counts[history.StatIdle] = float64(runtime.NumGoroutine())
	fmt.Println(saysIdle)

	if err := c.obey(input, sayClose); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var closed error
	for i, l := range c.all {
		closed = errors.Join(closed, l.Close(ctx), c.rdbs[i].Close())
	}
	stopMeasuring()
	c.stat.Counts[history.StatLag] = float64(c.lag.since(settled))
	c.stat.Counts[history.StatLagAll] = float64(c.lag.since(time.Time{}))
	if err := goleak.Find(append(c.leftByGoRedis(), quiet, goleak.IgnoreTopFunction("bufio.(*Scanner).Scan"))...); err != nil {
		c.stat.Why = err.Error()
	}
	c.stat.At = now()
	c.diary.note(c.stat)
	if err := c.summarize(counts); err != nil {
		return err
	}
	fmt.Println(saysClosed)
	for input.Scan() { // until the parent has looked at our connections
	}
	return errors.Join(closed, c.diary.close())
}

// open makes the clients.
func (c *client) open(counts *counts) (err error) {
	servers := []orders{c.orders}
	if c.Apart {
		servers = nil
		for _, addr := range c.Addrs {
			o := c.orders
			o.Addrs = []string{addr}
			servers = append(servers, o)
		}
	}
	for _, o := range servers {
		rdb := o.dial()
		rdb.AddHook(askings{diary: c.diary, given: new(sync.Map)})
		opts := append(counts.options(), lock.WithLease(c.Lease), lock.WithWaitGraph(waitGraphAfter))
		if c.Agent != "" {
			opts = append(opts, lock.WithAgent(c.Agent))
		}
		l, err := lock.New(rdb, opts...)
		if err != nil {
			return err
		}
		c.rdbs, c.all = append(c.rdbs, rdb), append(c.all, l)
	}
	if c.locks = c.all[0]; len(c.all) > 1 {
		c.quorum, err = lock.NewQuorum(c.all...)
	}
	return err
}

// leftByGoRedis has goleak ignore what go-redis leaves behind.
func (c *client) leftByGoRedis() []goleak.Option {
	if c.Master == "" || !c.Cluster {
		return nil
	}
	return redistest.FailoverClusterLeak()
}

// names are all that are contended for.
func (c *client) names() (all []string) {
	for _, t := range c.Targets {
		all = append(all, t.Name)
	}
	return all
}

// obey waits for an order.
func (c *client) obey(input *bufio.Scanner, want string) error {
	feed := func() {}
	for input.Scan() {
		switch word, number, _ := strings.Cut(input.Text(), " "); word {
		case want:
			feed()
			return nil
		case sayHold:
			c.holds.Store(true)
		case sayStarve:
			n, err := strconv.Atoi(number)
			if err != nil {
				return err
			}
			feed()
			feed = starve(n)
		case sayFeed:
			feed()
		default:
			return fmt.Errorf("told to %q, not to %q", word, want)
		}
	}
	return errors.New("the parent has gone")
}

// starve leaves one processor to this process, and n loops on it that never rest.
func starve(n int) (feed func()) {
	before := runtime.GOMAXPROCS(1)
	var fed atomic.Bool
	var loops sync.WaitGroup
	for range n {
		loops.Go(func() {
			for !fed.Load() {
			}
		})
	}
	return sync.OnceFunc(func() {
		fed.Store(true)
		loops.Wait()
		runtime.GOMAXPROCS(before)
	})
}

// dial gives the Redis client: the servers are dialed through this process's proxies.
func (o orders) dial() redis.UniversalClient {
	dialer := net.Dialer{Timeout: o.Timeout}
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.Addrs, MasterName: o.Master, IsClusterMode: o.Cluster,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolSize: poolSize,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if via, ok := o.Via[addr]; ok {
				addr = via
			}
			return dialer.DialContext(ctx, network, addr)
		},
	})
}

// summarize tells what the client's telemetry says of all of it.
func (c *client) summarize(counts *counts) error {
	all, err := counts.collect()
	if err != nil {
		return err
	}
	s := history.Event{At: now(), What: history.Summary, Counts: all}
	c.noteEnded()
	for l := range c.ended {
		s.Ended = append(s.Ended, history.Ended{Owner: l.Owner, End: l.End, Why: l.Why, Member: l.Composite != nil || l.Kind == "quorum"})
	}
	c.diary.note(s)
	return nil
}

// noteEnded takes in what Client.Recent says. Not for two goroutines at once: watchEnded calls it until it is stopped, summarize after that.
func (c *client) noteEnded() {
	for _, of := range c.all {
		for _, l := range of.Recent() {
			l.Err = nil // some can't be keys of a map
			c.ended[l] = true
		}
	}
}

// watchEnded takes it in before it is forgotten: Client.Recent has the last thousand leases, and a long run more.
func (c *client) watchEnded() (stop func()) {
	return every(time.Second, func(context.Context) { c.noteEnded() })
}

// every calls f now, and again whenever pause has passed since it returned. stop ends its ctx, and returns when f isn't running any more.
func every(pause time.Duration, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			f(ctx)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		loop.Wait()
	}
}

// warmUp is how long a client works before it says that it is warm.
const warmUp = 300 * time.Millisecond

// watchGoroutines notes what is usual before the faults begin: the parent waits for all to be warm.
func (c *client) watchGoroutines() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-time.After(warmUp):
		case <-done:
		}
		c.stat.Counts[history.StatWarm] = float64(runtime.NumGoroutine())
	}()
	return func() {
		close(done)
		<-ended
	}
}

// granted says once that locks can be taken.
func (c *client) granted() {
	c.warm.Do(func() { fmt.Println(saysWarm) })
}
