package redistest

import (
	"context"
	"maps"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
)

// Fake is a [fakeredis.Server] for tests in a synctest bubble: the real go-redis and the real scripts, in fake time.
// Its clock is the bubble's. A test of something that it lacks needs a [Server].
//
// The commands that start a connection, HELLO and CLIENT, are always answered, whatever Pause and the rules of proxies
// say. go-redis holds a mutex during them, and a bubble's clock stands still while a goroutine waits for a mutex.
//
// No goroutine in a bubble may wait for a connection of a pool: see [fakeredis.Options]. A client of [Fake.Client] with
// such a wait fails the test.
type Fake struct {
	mini *fakeredis.Server
	addr string

	mu       sync.Mutex
	paused   chan struct{} // closed by Resume; nil: not paused
	refuse   func(cmd string, args ...string) string
	executed Commands
}

// lastPause is longer than any pause of go-redis or lockdog before it notices that its client is closed.
const lastPause = 2 * time.Second

// StartFake starts a fake Redis. It ends with the test, or its bubble.
func StartFake(tb testing.TB) *Fake {
	tb.Helper()
	f := &Fake{mini: fakeredis.New(), addr: freePipe(), executed: make(Commands)}
	must(tb, f.mini.Open(f.execute))
	stop, err := listen(f.addr, f.mini.Serve) // which refuses while f is killed
	must(tb, err)
	tb.Cleanup(func() {
		must(tb, stop())
		f.Kill(tb)
		time.Sleep(lastPause) // lets goroutines end that no Close waits for
	})
	return f
}

// execute is called before each command, including those of scripts. It waits while paused, refuses, or counts the
// command.
func (f *Fake) execute(p *server.Peer, cmd string, args ...string) (done bool) {
	f.mu.Lock()
	paused, refuse := f.paused, f.refuse
	f.mu.Unlock()
	// Don't pause inside a script: it holds miniredis's mutex, and a bubble's clock stands still while others wait for
	// that.
	if paused != nil && !isGreeting(cmd) && !ofScript(p) {
		<-paused
	}
	if refuse != nil {
		if text := refuse(cmd, args...); text != "" {
			p.WriteError(text)
			return true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.executed[strings.ToLower(cmd)]++
	if cmd == "WAIT" { // there are no replicas
		p.WriteInt(0)
		return true
	}
	return false
}

// ofScript reports whether a command comes from a script. Only an unexported field of miniredis's context says so.
func ofScript(p *server.Peer) bool {
	ctx := reflect.ValueOf(p.Ctx)
	return ctx.Kind() == reflect.Pointer && ctx.Elem().FieldByName("nested").Bool()
}

// SetRefusal makes the server reply with an error, such as "OOM command not allowed", to each command for which refuse
// returns one, including those of scripts. nil ends that. The command's name is in capitals.
func (f *Fake) SetRefusal(refuse func(cmd string, args ...string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// Addr returns the address that [Fake.Client] and proxies dial.
func (f *Fake) Addr() string { return f.addr }

// Universal returns the options of a client of this server.
func (f *Fake) Universal() *redis.UniversalOptions {
	o := fakeredis.Options()
	o.Addrs = []string{f.addr}
	o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }
	return o
}

// Client returns a client with [fakeredis.Options], except for what the functions change, such as the address to that
// of a proxy. It is closed when the test ends.
func (f *Fake) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	c := newClient(tb, f.Universal(), change)
	tb.Cleanup(func() {
		if s := c.PoolStats(); s.WaitCount+s.Timeouts > 0 {
			tb.Error("redistest: in a bubble somebody waited for a connection of a pool, see Fake")
		}
	})
	return c
}

// Prefix returns "": no other test uses the server. See [Space.Prefix].
func (f *Fake) Prefix() string { return "" }

// Keys returns the existing keys, unsorted.
func (f *Fake) Keys(testing.TB) []string { return f.mini.Keys() }

// Commands returns what was executed since StartFake, including commands of scripts, but not what SetRefusal refused.
func (f *Fake) Commands(testing.TB) Commands {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.executed)
}

// Pause is [Server.Pause]: connections stay open and are accepted, but get no replies.
func (f *Fake) Pause(testing.TB) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused == nil {
		f.paused = make(chan struct{})
	}
}

// Resume makes a paused server continue. It then executes what was sent to it in the meantime.
func (f *Fake) Resume(testing.TB) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused != nil {
		close(f.paused)
		f.paused = nil
	}
}

// Kill ends all connections and refuses new ones. A second Kill is no error.
func (f *Fake) Kill(tb testing.TB) {
	f.Resume(tb) // otherwise Close would wait for a paused command
	f.mini.Close()
}

// Restart kills the server and starts it again at the same address, without its cached scripts.
func (f *Fake) Restart(tb testing.TB, data Data) {
	tb.Helper()
	f.Kill(tb)
	must(tb, f.mini.Open(f.execute))
	must(tb, f.Client(tb).ScriptFlush(context.Background()).Err())
	if data == LoseData {
		f.mini.FlushAll()
	}
}

// Hook is a redis.Hook that does nothing. A hook that embeds it needs only the methods that it changes.
type Hook struct{ fakeredis.Tap }
