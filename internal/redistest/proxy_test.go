package redistest_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// inFakeTimeBehind gives the test a proxy before a fake, a client that goes through it, and one that does not.
func inFakeTimeBehind(t *testing.T, test func(t *testing.T, p *redistest.Proxy, through, direct *redis.Client)) {
	t.Helper()
	inFakeTime(t, func(t *testing.T, f *redistest.Fake) {
		p := redistest.NewProxy(t, f.Addr())
		test(t, p, f.Client(t, once, func(o *redis.Options) { o.Addr = p.Addr() }), f.Client(t))
	})
}

func wantTimeout(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: %v, want a timeout", what, err)
	}
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	direct := s.Client(t)
	through := s.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
	ctx := t.Context()
	blob := make([]byte, 3<<20)
	if _, err := rand.Read(blob); err != nil {
		t.Fatal(err)
	}
	if err := through.Set(ctx, "k", blob, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*redis.Client{"direct": direct, "through": through} {
		if got, err := c.Get(ctx, "k").Bytes(); err != nil || !bytes.Equal(got, blob) {
			t.Errorf("%s: %d bytes, %v; want the %d that were set", name, len(got), err, len(blob))
		}
	}
	if n := p.Conns(); n != 1 {
		t.Errorf("Conns = %d, want 1", n)
	}
}

// A request that reaches the server long after its client has given up and
// hung up: what a lock must survive.
func TestProxyDeliversHeldRequestOfGoneClient(t *testing.T) {
	inFakeTimeBehind(t, func(t *testing.T, p *redistest.Proxy, through, direct *redis.Client) {
		ctx := t.Context()
		if err := through.Ping(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		p.SetRule(redistest.When(redistest.Up, redistest.Hold, redistest.Contains("rpush")))
		wantTimeout(t, "RPUSH", through.RPush(ctx, "list", "late").Err())
		p.AwaitHeld(t, 1)
		if err := through.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := direct.LLen(ctx, "list").Result(); err != nil || n != 0 {
			t.Fatalf("LLEN before Release = %d, %v; want 0", n, err)
		}
		p.SetRule(nil)
		p.Release()
		synctest.Wait()
		if got, err := direct.LPop(ctx, "list").Result(); err != nil || got != "late" {
			t.Errorf("LPOP = %q, %v; the held request was not delivered", got, err)
		}
		if p.Held() != 0 {
			t.Errorf("Held after Release = %d", p.Held())
		}
	})
}

func TestProxyDropsAllThatFollows(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	judged := make(chan struct{})
	p.SetRule(func(c redistest.Chunk) redistest.Verdict {
		if c.Dir == redistest.Up && string(c.Data) == "a" {
			close(judged)
			return redistest.Drop
		}
		return redistest.Pass
	})
	send(t, conn, "a")
	<-judged // else both letters could be one chunk
	send(t, conn, "b")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || len(got) != 0 {
		t.Errorf("received %q, %v; want nothing and an orderly end", got, err)
	}
}

// Release delivers what is held, in its order; what comes later is held again.
func TestProxyReleases(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	p.SetRule(redistest.When(redistest.Up, redistest.Hold))
	send(t, conn, "a")
	p.AwaitHeld(t, 1)
	send(t, conn, "b")
	p.Release()
	if got := receive(t, conn, 1); got != "a" {
		t.Errorf("received %q, want a", got)
	}
	p.AwaitHeld(t, 1)
	p.Release()
	if got := receive(t, conn, 1); got != "b" {
		t.Errorf("received %q, want b", got)
	}
}

// A Release that comes while the rule is asked is for that chunk, too: else it would be held until the next.
func TestProxyReleasesWhatIsBeingJudged(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	p.SetRule(redistest.When(redistest.Up, redistest.Hold, func(redistest.Chunk) bool {
		p.Release()
		return true
	}))
	send(t, conn, "a")
	if got := receive(t, conn, 1); got != "a" || p.Held() != 0 {
		t.Errorf("received %q, %d are held", got, p.Held())
	}
}

func TestProxyCutResetsConnection(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	p.SetRule(redistest.When(redistest.Up, redistest.Cut))
	send(t, conn, "a")
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read = %v, want ECONNRESET", err)
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	p, conn := echo(t)
	send(t, conn, "x") // once it is answered the proxy has accepted the connection; in the backlog it would be refused, too
	if got := receive(t, conn, 1); got != "x" {
		t.Fatalf("received %q, want x", got)
	}
	p.Refuse(t)
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial = %v, want ECONNREFUSED", err)
	}
	send(t, conn, "a") // the old connection goes on
	if got := receive(t, conn, 1); got != "a" {
		t.Errorf("received %q, want a", got)
	}
	other, err := net.Listen("tcp", p.Addr()) // as a process that is being started has the listener for a moment
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = other.Close() })
	p.Accept(t)
	again, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatalf("Dial after Accept: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// echo returns a connection through a proxy to a server that sends back what
// it receives.
func echo(t *testing.T) (*redistest.Proxy, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn) // ends with the proxy's side of the connection
			err = conn.Close()
		}
		served <- err
	}()
	t.Cleanup(func() {
		closed := l.Close()
		// A test that cuts at once may end before the connection is accepted.
		if err := <-served; closed != nil || err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(closed, err)
		}
	})
	p := redistest.NewProxy(t, l.Addr().String())
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return p, conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(conn, buf); err != nil {
		t.Fatal(err)
	}
	return string(buf)
}
