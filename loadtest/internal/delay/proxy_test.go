package delay_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/delay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what should be there at once, on a machine that hardly lets us run.
const patience = 2 * time.Minute

// echo is a server that says what it hears. It ends with the test.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				_, _ = io.Copy(conn, conn) // until either side has gone
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// start puts a server at a distance, until the test ends.
func start(t *testing.T, target string, rtt time.Duration) *delay.Proxy {
	t.Helper()
	p, err := delay.Start(target, rtt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil && !errors.Is(err, net.ErrClosed) { // closed by the test
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, p *delay.Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // perhaps for the second time
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// ping is how long a small message takes there and back.
func ping(conn net.Conn) (time.Duration, error) {
	message, answer := []byte("PING\r\n"), make([]byte, 6)
	began := time.Now()
	if _, err := conn.Write(message); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, answer); err != nil {
		return 0, err
	}
	if took := time.Since(began); bytes.Equal(message, answer) {
		return took, nil
	}
	return 0, errors.New("another answer: " + string(answer))
}

// No round trip is shorter, and not each is much longer.
func TestRoundTrip(t *testing.T) { // not parallel: the others keep all CPUs busy
	target := echo(t)
	for _, rtt := range []time.Duration{0, 2 * time.Millisecond, 11 * time.Millisecond, 100 * time.Millisecond} {
		conn := dial(t, start(t, target, rtt))
		for quick := 0; quick < 5; { // until the conn's deadline
			d, err := ping(conn)
			if err != nil {
				t.Fatal(err)
			}
			if d < rtt {
				t.Errorf("%v took %v", rtt, d)
			}
			if d <= rtt+50*time.Millisecond {
				quick++
			}
		}
	}
}

// What is said comes back as it was, in chunks of all sizes on several connections.
func TestContent(t *testing.T) {
	t.Parallel()
	p := start(t, echo(t), 5*time.Millisecond)
	var all sync.WaitGroup
	for range 2 {
		conn := dial(t, p)
		said := make([]byte, 17<<20)
		_, _ = rand.Read(said) // never fails
		all.Go(func() {
			rest, size := said, 1
			for len(rest) > 0 {
				n := min(size, len(rest))
				if _, err := conn.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest, size = rest[n:], size*3%(1<<20)+1
			}
			if err := conn.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			heard, err := io.ReadAll(conn) // up to the end, which is passed on, too
			if err != nil || !bytes.Equal(heard, said) {
				t.Errorf("%d of %d bytes, %v", len(heard), len(said), err)
			}
		})
	}
	all.Wait()
}

// Messages on their way don't wait for each other: a hundred take as long as one, on one connection or on many.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const (
		rtt  = time.Second
		many = 100
	)
	p := start(t, echo(t), rtt)
	conns := make([]*net.TCPConn, many)
	for i := range conns {
		conns[i] = dial(t, p)
	}
	began := time.Now()
	var all sync.WaitGroup
	for _, conn := range conns[1:] {
		all.Go(func() {
			if _, err := ping(conn); err != nil {
				t.Error(err)
			}
		})
	}
	for range many {
		if _, err := conns[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(conns[0], make([]byte, many)); err != nil {
		t.Error(err)
	}
	all.Wait()
	if took := time.Since(began); took < rtt || took > many/2*rtt {
		t.Errorf("%v, of a round trip of %v", took, rtt)
	}
}

// Close ends everything at once, whatever is on its way. That no goroutine is left, the end of all tests shows.
func TestClose(t *testing.T) {
	t.Parallel()
	const far = 2 * time.Minute
	p := start(t, echo(t), far)
	conns := []net.Conn{dial(t, p), dial(t, p)}
	for _, conn := range conns {
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, conn := range conns {
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if took := time.Since(began); took > far/4 {
		t.Errorf("it took %v", took)
	}
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

// One side's end, or death, is the other's.
func TestEnds(t *testing.T) {
	t.Parallel()
	p := start(t, echo(t), time.Millisecond)
	polite, dying := dial(t, p), dial(t, p)
	for _, conn := range []*net.TCPConn{polite, dying} {
		if _, err := ping(conn); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(polite.CloseWrite(), dying.SetLinger(0), dying.Close()); err != nil {
		t.Fatal(err)
	}
	if n, err := polite.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A server that isn't there costs the client its connection, and Close tells.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	p, err := delay.Start("127.0.0.1:1", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", p.Addr()); err == nil { // otherwise it was told already
		if _, err := ping(conn); err == nil {
			t.Error("somebody answered")
		}
		_ = conn.Close()
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
}
