package sample

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Every is the time from sample to sample. One costs Redis about 5 µs, and 20 to read and write.
	Every = 20 * time.Millisecond
	// Window is what the peak is counted over: five samples.
	Window = 100 * time.Millisecond

	sampleTimeout = 5 * time.Second
)

// Point is how many scripts the servers have executed by a time.
type Point struct {
	At    time.Time
	Calls int64
}

// Servers are asked for INFO over one connection each.
type Servers []*conn

// conn counts its bytes, which Look subtracts.
type conn struct {
	mu      sync.Mutex // one question at a time: bytes belong to the question under way
	rdb     *redis.Client
	in, out atomic.Int64 // as the server sees it: in is what we wrote
}

// Open makes clients of servers, given as options.
func Open(servers []*redis.Options) Servers {
	var s Servers
	for _, o := range servers {
		c := &conn{}
		own := *o
		own.PoolSize, own.MinIdleConns, own.DisableIdentity, own.Protocol, own.MaxRetries = 1, 0, true, 2, -1
		own.ReadTimeout, own.DialerRetries = sampleTimeout, 1
		dial := redis.NewDialer(&own)
		own.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &counted{nc, c}, nil
		}
		c.rdb = redis.NewClient(&own)
		s = append(s, c)
	}
	return s
}

// Close closes the connections.
func (s Servers) Close() error {
	var errs []error
	for _, c := range s {
		errs = append(errs, c.rdb.Close())
	}
	return errors.Join(errs...)
}

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	c *conn
}

func (n *counted) Read(b []byte) (int, error) {
	k, err := n.Conn.Read(b)
	n.c.out.Add(int64(k))
	return k, err
}

func (n *counted) Write(b []byte) (int, error) {
	k, err := n.Conn.Write(b)
	n.c.in.Add(int64(k))
	return k, err
}

// Look reads all of Info now. The bytes and the CPU time of these questions are subtracted.
func (s Servers) Look(ctx context.Context) (Info, error) {
	return s.ask(ctx, "server", "stats", "cpu", "commandstats")
}

// ask asks all servers at the same time.
func (s Servers) ask(ctx context.Context, sections ...string) (Info, error) {
	infos, errs := make([]Info, len(s)), make([]error, len(s))
	var all sync.WaitGroup
	for i, c := range s {
		all.Go(func() { infos[i], errs[i] = c.ask(ctx, sections) })
	}
	all.Wait()
	var sum Info
	for _, info := range infos {
		sum.add(info)
	}
	return sum, errors.Join(errs...)
}

func (c *conn) ask(ctx context.Context, sections []string) (Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := c.rdb.Info(ctx, sections...).Result()
	if err != nil {
		return Info{}, fmt.Errorf("INFO of %s: %w", c.rdb.Options().Addr, err)
	}
	info, err := Parse(text)
	// In what the server says, this question is counted and its answer is not.
	info.In -= c.in.Load()
	info.Out -= c.out.Load() - int64(len(text))
	info.CPU -= info.Commands["info"].CPU
	return info, err
}

// Sampler samples servers all the time.
type Sampler struct {
	Servers

	mu     sync.Mutex
	points []Point
	err    error

	stop context.CancelFunc
	done chan struct{}
}

// New connects to servers, given as options, and starts to sample.
func New(ctx context.Context, servers []*redis.Options) (*Sampler, error) {
	s := &Sampler{Servers: Open(servers), done: make(chan struct{})}
	ctx, s.stop = context.WithCancel(ctx)
	if _, err := s.Look(ctx); err != nil {
		close(s.done)
		return nil, errors.Join(err, s.Close())
	}
	go s.run(ctx)
	return s, nil
}

func (s *Sampler) run(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		info, err := s.ask(ctx, "server", "commandstats")
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		if err != nil {
			s.err = err
		} else {
			s.points = append(s.points, Point{At: info.At, Calls: Sort(info.Commands, 0).Scripts})
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Cut closes the connections of all clients but the sampler's own.
func (s Servers) Cut(ctx context.Context) error {
	var errs []error
	for _, c := range s {
		c.mu.Lock()
		for _, kind := range []string{"normal", "pubsub"} {
			errs = append(errs, c.rdb.Do(ctx, "client", "kill", "type", kind, "skipme", "yes").Err())
		}
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Take returns the samples since the last call of Take, and the error that ended the sampling, if one did.
func (s *Sampler) Take() ([]Point, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	points := s.points
	if n := len(points); n > 0 {
		s.points = []Point{points[n-1]} // no call falls between
	}
	return points, s.err
}

// Close stops it.
func (s *Sampler) Close() error {
	s.stop()
	<-s.done
	return s.Servers.Close()
}
