package redistest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// shared is the server of [Shared]. It starts with the first test that calls Shared, so a run of other tests starts
// none.
var shared struct {
	sync.Mutex
	inMain bool
	server *Server
	err    error
	spaces atomic.Int64
}

// Main is for a package's TestMain. It runs the tests, ends the shared server, checks with goleak that no goroutine is
// left, and exits. It discards the logs of go-redis and of slog's default logger: their lines don't say which test they
// belong to.
func Main(m *testing.M, opts ...goleak.Option) {
	logging.Disable() // the log of go-redis, which has a line for each failed connection
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(runner{m, opts}, opts...)
}

// FailoverClusterLeak returns options by which goleak ignores what go-redis leaves behind when a client of
// NewFailoverClusterClient is closed: its subscription at a Sentinel. lockdog doesn't run these functions.
func FailoverClusterLeak() []goleak.Option {
	var all []goleak.Option
	for _, f := range []string{
		"(*sentinelFailover).listen", "(*channel).initHealthCheck.func1", "(*channel).initMsgChan.func1",
	} {
		all = append(all, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9."+f))
	}
	return all
}

// runner ends the shared server after the last test, before goleak checks.
type runner struct {
	m    *testing.M
	opts []goleak.Option
}

// Run is called by goleak in place of m.Run.
func (r runner) Run() int {
	shared.Lock()
	shared.inMain = true
	shared.Unlock()
	code := r.m.Run()

	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		// This only waits: VerifyTestMain decides. go-redis takes its time to notice that a client was closed while it
		// dialed dead servers: it tries several times, and a client of Sentinels asks each of them. goleak's own limit
		// is too short for that.
		_ = poll(func(context.Context) error { return goleak.Find(r.opts...) })
	}
	return code
}

func stopShared() error {
	shared.Lock()
	defer shared.Unlock()
	shared.inMain = false
	if shared.server == nil {
		return nil
	}
	return shared.server.stop()
}

// Space is one test's part of the shared server: the keys under its prefix belong to the test. It has no Pause and no
// Kill. FLUSHALL or CONFIG SET would disturb other tests that run at the same time: use [Start] for those.
type Space struct {
	server *Server
	prefix string
}

// Shared returns a new Space in the server that all tests of this binary share. Keys under its prefix are deleted when
// the test ends.
func Shared(tb testing.TB) Space {
	tb.Helper()
	s, err := sharedServer()
	if err != nil {
		tb.Fatal(err)
	}
	sp := Space{server: s, prefix: fmt.Sprintf("t%d:", shared.spaces.Add(1))}
	tb.Cleanup(func() {
		if keys := sp.Keys(tb); len(keys) > 0 {
			ctx, cancel := adminContext()
			defer cancel()
			if err := s.admin.Unlink(ctx, keys...).Err(); err != nil {
				tb.Errorf("redistest: clean up %s: %v", sp.prefix, err)
			}
		}
	})
	return sp
}

func sharedServer() (*Server, error) {
	shared.Lock()
	defer shared.Unlock()
	if !shared.inMain {
		return nil, fmt.Errorf(
			"redistest: Shared needs `func TestMain(m *testing.M) { redistest.Main(m) }` in this package")
	}
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = startServer(newConfig(nil))
	}
	return shared.server, shared.err
}

// Addr returns the shared server's host:port.
func (sp Space) Addr() string { return sp.server.Addr() }

// Prefix returns the prefix that every key and channel of this test must have. It ends with a colon, and has no braces,
// so that hash tags work.
func (sp Space) Prefix() string { return sp.prefix }

// Universal returns the options of a client of the shared server.
func (sp Space) Universal() *redis.UniversalOptions { return sp.server.Universal() }

// Client returns a client of the shared server; see [Server.Client].
func (sp Space) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return sp.server.Client(tb, change...)
}

// Keys returns the existing keys under the prefix, unsorted: what a test has left behind.
func (sp Space) Keys(tb testing.TB) []string {
	tb.Helper()
	ctx, cancel := adminContext()
	defer cancel()
	keys, err := sp.server.keys(ctx, sp.prefix)
	if err != nil {
		tb.Fatalf("redistest: keys under %s: %v", sp.prefix, err)
	}
	return keys
}

func (s *Server) keys(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	it := s.admin.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for it.Next(ctx) {
		keys = append(keys, it.Val())
	}
	return keys, it.Err()
}
