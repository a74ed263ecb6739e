package sample

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Every is the time between two samples. One sample costs Redis about 5 µs, and 20 µs for reading and writing.
	Every = 20 * time.Millisecond
	// Window is the period for the peak: five samples.
	Window = 100 * time.Millisecond

	sampleTimeout = 5 * time.Second
)

// Point is the number of scripts that the servers have executed until a time.
type Point struct {
	At    time.Time
	Calls int64
}

// Servers are clients for INFO, with one connection to each server.
type Servers []*redis.Client

// Open makes clients for servers.
func Open(addrs []string) Servers {
	var s Servers
	for _, addr := range addrs {
		s = append(s, redis.NewClient(&redis.Options{
			Addr: addr, PoolSize: 1, DisableIdentity: true, Protocol: 2, MaxRetries: -1,
			ReadTimeout: sampleTimeout, DialerRetries: 1,
		}))
	}
	return s
}

// Close closes the connections.
func (s Servers) Close() error {
	var errs []error
	for _, c := range s {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Look reads all sections that Info needs, now. It subtracts the CPU time of the INFO commands.
func (s Servers) Look(ctx context.Context) (Info, error) {
	return s.ask(ctx, "server", "cpu", "commandstats")
}

// ask asks all servers concurrently, and returns the sum.
func (s Servers) ask(ctx context.Context, sections ...string) (Info, error) {
	infos, errs := make([]Info, len(s)), make([]error, len(s))
	var all sync.WaitGroup
	for i, c := range s {
		all.Go(func() {
			text, err := c.Info(ctx, sections...).Result()
			if err == nil {
				infos[i], err = Parse(text)
			}
			if err != nil {
				errs[i] = fmt.Errorf("INFO of %s: %w", c.Options().Addr, err)
			}
		})
	}
	all.Wait()
	sum := Info{Commands: make(map[string]Stat)}
	for _, info := range infos {
		sum.add(info)
	}
	sum.CPU -= sum.Commands["info"].CPU
	return sum, errors.Join(errs...)
}

// Sampler samples servers continuously.
type Sampler struct {
	Servers

	mu     sync.Mutex
	points []Point
	err    error

	stop context.CancelFunc
	all  sync.WaitGroup
}

// New connects to servers and starts sampling.
func New(ctx context.Context, addrs []string) (*Sampler, error) {
	s := &Sampler{Servers: Open(addrs)}
	ctx, s.stop = context.WithCancel(ctx)
	if _, err := s.Look(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.all.Go(func() { s.run(ctx) })
	return s, nil
}

func (s *Sampler) run(ctx context.Context) {
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

// Take returns the samples since the last call of Take, beginning with the last one that it returned then, and the
// error that ended the sampling, if any.
func (s *Sampler) Take() ([]Point, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	points := s.points
	if n := len(points); n > 0 {
		s.points = []Point{points[n-1]} // kept, so that no call is lost between two Takes
	}
	return points, s.err
}

// Close stops the sampling, and closes the connections.
func (s *Sampler) Close() error {
	s.stop()
	s.all.Wait()
	return s.Servers.Close()
}
