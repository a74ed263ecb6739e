package leader_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/leader"
	"github.com/lockdog/lockdog/lock/locktest"
)

const name = "leader:reports"

// diary is what happened, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "; ")
}

// told are options whose callbacks write to the diary.
func (d *diary) told() []leader.Option {
	return []leader.Option{
		leader.OnElected(func(int64) { d.note("elected") }),
		leader.OnDeposed(func(cause error) { d.note("deposed: %v", cause) }),
		leader.OnNewLeader(func(id string) { d.note("new leader %s", id) }),
	}
}

// quiet keeps logs out of the tests' output.
func quiet() leader.Option { return leader.WithLogger(slog.New(slog.DiscardHandler)) }

// ages are long enough for whatever happens in the course of a lease.
const ages = 20 * lock.DefaultLease

func quietly() lock.Option { return lock.WithLogger(slog.New(slog.DiscardHandler)) }

// server is one whose clients don't log.
func server(t *testing.T, opts ...lock.Option) *locktest.Server {
	return locktest.New(t, append(opts, quietly())...)
}

// started is a Run under way.
type started struct {
	*leader.Elector
	cancel context.CancelCauseFunc
	result chan error
}

// start runs an Elector until the test ends.
func start(t *testing.T, m lock.Locker, fn func(context.Context) error, opts ...leader.Option) *started {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &started{leader.New(m, append([]leader.Option{quiet()}, opts...)...), cancel, make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.result <- s.Run(ctx, fn)
	}()
	t.Cleanup(func() {
		cancel(context.Canceled)
		<-ended
	})
	return s
}

// end waits for Run's result, which has to come within d.
func (s *started) end(t *testing.T, d time.Duration) error {
	t.Helper()
	select {
	case err := <-s.result:
		return err
	case <-time.After(d):
		t.Fatalf("Run didn't return within %v", d)
		return nil
	}
}

// runs reports that Run hasn't returned.
func (s *started) runs(t *testing.T) {
	t.Helper()
	select {
	case err := <-s.result:
		t.Fatalf("Run returned %v", err)
	default:
	}
}

// leading starts an Elector, and waits until it leads. Then fn winds down its term.
func leading(t *testing.T, m lock.Locker, windDown func(ctx context.Context) error, opts ...leader.Option) *started {
	t.Helper()
	elected := make(chan struct{})
	s := start(t, m, func(ctx context.Context) error {
		close(elected)
		<-ctx.Done()
		return windDown(ctx)
	}, opts...)
	<-elected
	return s
}

// untilOver is a leader's function that works until its ctx ends.
func untilOver(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// logs is a logger whose lines can be counted.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) option() leader.Option {
	return leader.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// sick is a lock that fails while err is set, and counts how it is used.
type sick struct {
	*lock.Mutex
	err      atomic.Pointer[error]
	mu       sync.Mutex
	asked    []time.Time // when Lock was called
	inspects atomic.Int64
}

func (s *sick) fail(err error) { s.err.Store(&err) }

func (s *sick) Lock(ctx context.Context) (*lock.Lease, error) {
	s.mu.Lock()
	s.asked = append(s.asked, time.Now())
	s.mu.Unlock()
	if err := s.err.Load(); err != nil && *err != nil {
		return nil, *err
	}
	return s.Mutex.Lock(ctx)
}

func (s *sick) Inspect(ctx context.Context) (lock.Holder, error) {
	s.inspects.Add(1)
	return s.Mutex.Inspect(ctx)
}

func (s *sick) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.asked...)
}
