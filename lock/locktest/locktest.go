package locktest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/lock"
)

// Thief is the new owner of a lock after Lose with lock.CauseTaken. For an RWMutex it is the writer Thief + ":write".
const Thief = "locktest/thief:1"

// closeGrace is how long Close waits for leases that are not released.
const closeGrace = time.Second

// Server is a Redis in this process, together with its clients. The names that its methods take are keys: they include
// the prefix of lock.WithKeyPrefix.
//
// It is safe for concurrent use. Client, NewClient, Hold and Lose may fail the test, so call them only from the test's
// goroutine.
type Server struct {
	t      testing.TB
	opts   []lock.Option
	fake   *fakeredis.Server
	faults faults
	output testOutput

	once  sync.Once
	first *lock.Client

	mu      sync.Mutex
	clients []*lock.Client
	conns   []*redis.Client // the clients' connections, and admin
	admin   *redis.Client   // for the server's own scripts; nil: the server isn't open
	cutOff  map[place]bool  // holds whose renewals fail
}

// New returns an empty server. The options are the defaults of all its clients. Close is called when the test ends.
//
// The clients log to t.Output, which go test shows with -v or if the test fails. lock.WithLogger changes that. Records
// after the test's end are dropped.
//
// t may be nil, as in an Example. Then the caller must call Close, errors panic instead of failing the test, and the
// clients log to slog.Default.
func New(t testing.TB, opts ...lock.Option) *Server {
	s := &Server{t: t, opts: opts, fake: fakeredis.New(), cutOff: make(map[place]bool)}
	if t != nil {
		t.Helper()
		s.output.w = t.Output()
		s.opts = slices.Concat([]lock.Option{lock.WithLogger(slog.New(slog.NewTextHandler(&s.output, nil)))}, opts)
		t.Cleanup(func() {
			s.Close()
			s.output.end()
		})
	}
	return s
}

// testOutput is the output of a running test. After the test's end it drops what is written: a Write to t.Output would
// go to the parent's output, or panic if no parent runs any more.
type testOutput struct {
	mu sync.Mutex
	w  io.Writer // nil: the test has ended
}

func (o *testOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w == nil {
		return len(p), nil
	}
	return o.w.Write(p)
}

func (o *testOutput) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w = nil
}

// Client returns the server's first client. Every call returns the same client.
func (s *Server) Client() *lock.Client {
	s.helper()
	s.once.Do(func() { s.first = s.NewClient() })
	return s.first
}

// NewClient returns a new client, which acts like that of another process. Its options are applied after those of
// New. Options that lock.New rejects fail the test.
func (s *Server) NewClient(opts ...lock.Option) *lock.Client {
	s.helper()
	s.open()
	rdb := s.connect()
	rdb.AddHook(s.tap(rdb.Options().ReadTimeout))
	c, err := lock.New(rdb, slices.Concat(s.opts, opts, []lock.Option{lock.WithRenewalClient(rdb)})...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, rdb)
	if err != nil {
		s.fatalf("locktest: NewClient: %v", err)
	}
	s.clients = append(s.clients, c)
	return c
}

// Close closes all clients and the server. It waits up to a second for leases to be released. Leases that remain don't
// fail the test: they are only reported in its log.
func (s *Server) Close() {
	s.mu.Lock()
	clients, conns := s.clients, s.conns
	s.clients, s.conns, s.admin = nil, nil, nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(func() {
			if err := c.Close(ctx); err != nil && s.t != nil {
				s.t.Logf("locktest: %v", err)
			}
		})
	}
	closing.Wait()
	for _, rdb := range conns {
		_ = rdb.Close()
	}
	s.fake.Close()
}

// Hold makes an owner outside this process hold a lock: a Mutex, a FairMutex or one name of a Multi. release releases
// the lock and wakes its waiters; a second call does nothing. Until the release, the lock looks like one that its
// holder keeps renewing, with a lease of lock.DefaultLease.
//
// Holding a lock that is already held fails the test.
func (s *Server) Hold(name, owner string) (release func()) {
	s.helper()
	if name == "" || owner == "" {
		s.fatalf("locktest: Hold(%q, %q): a name and an owner are needed", name, owner)
	}
	s.open()
	if !s.eval(holdIt, name, owner, lock.DefaultLease.Milliseconds()) {
		s.fatalf("locktest: Hold(%q, %q): it is held by %q", name, owner, s.holder(name))
	}
	s.keep(name, owner)
	return sync.OnceFunc(func() { s.release(name, owner) })
}

// keep renews a lock of Hold until the owner doesn't hold it any more.
func (s *Server) keep(name, owner string) {
	time.AfterFunc(lock.DefaultLease/3, func() {
		if s.eval(renewIt, name, owner, lock.DefaultLease.Milliseconds()) {
			s.keep(name, owner)
		}
	})
}

func (s *Server) helper() {
	if s.t != nil {
		s.t.Helper()
	}
}

func (s *Server) fatalf(format string, args ...any) {
	if s.t == nil {
		panic(fmt.Sprintf(format, args...))
	}
	s.t.Helper()
	s.t.Fatalf(format, args...)
}
