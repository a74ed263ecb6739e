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

// startShared starts the server of [Shared] for the first test that calls Shared, so a run of other tests starts none.
// It is nil without [Main].
var startShared func() (*Server, error)

// spaces is the number of spaces in the shared server.
var spaces atomic.Int64

// Main is for a package's TestMain. It runs the tests, ends the shared server, checks with goleak that no goroutine is
// left (if the tests passed), and exits. It discards the logs of go-redis and of slog's default logger: their lines
// don't say which test they belong to.
func Main(m *testing.M, opts ...goleak.Option) {
	logging.Disable() // the log of go-redis, which has a line for each failed connection
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(runner{m, opts}, opts...)
}

// FailoverClusterLeak returns options by which goleak ignores what go-redis leaves behind when a client of
// NewFailoverClusterClient is closed: its subscription at a Sentinel. lockdog doesn't run these functions.
func FailoverClusterLeak() []goleak.Option {
	const in = "github.com/redis/go-redis/v9."
	return []goleak.Option{
		goleak.IgnoreAnyFunction(in + "(*sentinelFailover).listen"),
		goleak.IgnoreAnyFunction(in + "(*channel).initHealthCheck.func1"),
		goleak.IgnoreAnyFunction(in + "(*channel).initMsgChan.func1"),
	}
}

// runner ends the shared server after the last test, before goleak checks.
type runner struct {
	m    *testing.M
	opts []goleak.Option
}

// Run is called by goleak in place of m.Run.
func (r runner) Run() int {
	var server *Server
	startShared = sync.OnceValues(func() (_ *Server, err error) {
		server, err = startServer(newConfig(nil))
		return server, err
	})
	code := r.m.Run()
	if server != nil {
		if err := server.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		// This only waits: VerifyTestMain decides. go-redis takes its time to notice that a client was closed while it
		// dialed dead servers: it tries several times, and a client of Sentinels asks each of them. goleak's own limit
		// is too short for that.
		_ = poll(func() error { return goleak.Find(r.opts...) })
	}
	return code
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
	if startShared == nil {
		tb.Fatal("redistest: Shared needs `func TestMain(m *testing.M) { redistest.Main(m) }` in this package")
	}
	s, err := startShared()
	must(tb, err)
	sp := Space{server: s, prefix: fmt.Sprintf("t%d:", spaces.Add(1))}
	tb.Cleanup(func() {
		if keys := sp.Keys(tb); len(keys) > 0 {
			must(tb, s.admin.Unlink(context.Background(), keys...).Err())
		}
	})
	return sp
}

// Addr returns the shared server's host:port.
func (sp Space) Addr() string { return sp.server.Addr() }

// Prefix returns the prefix that every key and channel of this test must have. It ends with a colon, and has no braces,
// so that hash tags work.
func (sp Space) Prefix() string { return sp.prefix }

// Client returns a client of the shared server; see [Server.Client].
func (sp Space) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return sp.server.Client(tb, change...)
}

// Keys returns the existing keys under the prefix, unsorted: what a test has left behind.
func (sp Space) Keys(tb testing.TB) []string {
	tb.Helper()
	keys, err := sp.server.do("KEYS", sp.prefix+"*").StringSlice()
	must(tb, err)
	return keys
}
