package redistest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// shared is the one server that [Shared] hands out. It starts with the first
// test that asks for it, so that a run of other tests starts none.
var shared struct {
	sync.Mutex
	inMain bool
	server *Server
	err    error
	spaces atomic.Int64
}

// Main is what a package's TestMain calls. It runs the tests, ends the shared
// server, checks with goleak that no goroutine was left behind and exits. What
// go-redis and slog's default logger say isn't printed: nobody knows whose it was.
func Main(m *testing.M, opts ...goleak.Option) {
	logging.Disable() // go-redis's: a line for every failed connection
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(runner{m, opts}, opts...)
}

// FailoverClusterLeak has goleak ignore what go-redis leaves behind when a client made by NewFailoverClusterClient is closed: its subscription at a
// Sentinel. lockdog uses none of these functions.
func FailoverClusterLeak() []goleak.Option {
	var all []goleak.Option
	for _, f := range []string{"(*sentinelFailover).listen", "(*channel).initHealthCheck.func1", "(*channel).initMsgChan.func1"} {
		all = append(all, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9."+f))
	}
	return all
}

// runner ends the shared server between the last test and goleak's look.
type runner struct {
	m    *testing.M
	opts []goleak.Option
}

// leakPatience is longer than go-redis takes to notice that a client was closed
// while it dialed dead servers, for which goleak's own does not do: it tries several
// times, and a client of Sentinels asks each of them.
const leakPatience = 30 * time.Second

// Run is what goleak calls in place of m.Run.
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
		// Only waits: the verdict is VerifyTestMain's.
		_ = poll(leakPatience, func(context.Context) error { return goleak.Find(r.opts...) })
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

// Space is one test's corner of the shared server: whatever the test writes
// under Prefix is its own. It has no Pause and no Kill, and FLUSHALL or CONFIG
// SET would disturb other tests that run at the same time: for those, [Start].
type Space struct {
	server *Server
	prefix string
}

// Shared returns a fresh corner of the server that all tests of this binary
// share. Keys under its prefix are deleted when the test ends.
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
		return nil, fmt.Errorf("redistest: Shared needs `func TestMain(m *testing.M) { redistest.Main(m) }` in this package")
	}
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = startServer(newConfig(nil))
	}
	return shared.server, shared.err
}

// Addr is the shared server's host:port.
func (sp Space) Addr() string { return sp.server.Addr() }

// Prefix is what every key (and channel) of this test has to start with. It
// ends in a colon and has no braces, so that it leaves hash tags alone.
func (sp Space) Prefix() string { return sp.prefix }

// Universal gives the options of a client of the shared server.
func (sp Space) Universal() *redis.UniversalOptions { return sp.server.Universal() }

// Client returns a client of the shared server; see [Server.Client].
func (sp Space) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return sp.server.Client(tb, change...)
}

// Keys lists the keys that exist under the prefix, in no order: what a test
// left behind.
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
