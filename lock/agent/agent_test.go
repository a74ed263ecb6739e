package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
	"github.com/lockdog/lockdog/lock/internal/script"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const patience = 15 * time.Second

// secret of the clients, and an owner of theirs.
const secret = "s"

var owner = "host/1:" + script.DigitsOf(secret) + "-1"

// start starts an agent at a new socket.
func start(t *testing.T, rdb redis.UniversalClient) (a *agent.Agent, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	return serve(t, rdb, socket), socket
}

func serve(t *testing.T, rdb redis.UniversalClient, socket string) *agent.Agent {
	t.Helper()
	a, err := agent.New(rdb, agent.Config{})
	must(t, err)
	serving(t, a, socket)
	return a
}

// serving makes an agent serve at a socket, which it returns.
func serving(t *testing.T, a *agent.Agent, socket string) string {
	t.Helper()
	l, err := agent.Listen(socket, 0o600)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	t.Cleanup(func() {
		_ = a.Close(context.Background())
		must(t, <-served)
	})
	return socket
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin begins a session, and reads the Hello.
func begin(t *testing.T, socket string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, head)
	must(t, err)
	r := bufio.NewReader(c)
	for line := ""; !strings.HasPrefix(line, `{"clock":`); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return c, r
}

// head begins a session.
const head = "POST /v1/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret + "\r\nTransfer-Encoding: chunked\r\n\r\n"

func send(c net.Conn, line string) { _, _ = fmt.Fprintf(c, "%x\r\n%s\n\r\n", len(line)+1, line) }

// answer is the next line with JSON.
func answer(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		if strings.HasPrefix(line, "{") {
			return line
		}
	}
}

// TestSessionRefusals: what a client may not ask for, and what it may.
func TestSessionRefusals(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	_, socket := start(t, rdb)
	ours := fmt.Sprintf(`{"key":"job","owner":%q,"ms":30000}`, owner)
	held := func(release, counter string) string {
		return fmt.Sprintf(`{"key":"job","owner":%q,"ms":30000,"release":%q,"counter":%q}`, owner, release, counter)
	}
	const another = "host/1:0123456789abcdef-1"
	must(t, rdb.HSet(t.Context(), "job", owner, 1).Err())
	must(t, rdb.HSet(t.Context(), "program's", "field", 1, owner, 1).Err())
	for line, want := range map[string]string{
		`{"id":1,"by":99999999,"node":NODE,"leases":[` + ours + `]}`:                                                  `{"id":1,"renewed":[0]}`,
		`{"id":2,"by":99999999,"node":NODE,"leases":[{"key":"none","owner":"` + owner + `","ms":1}]}`:                 `{"id":2,"renewed":[]}`,
		`{"id":3,"by":0,"node":NODE,"leases":[` + ours + `]}`:                                                         "too late",
		`{"id":4,"by":-9223372036854775808,"node":NODE,"leases":[` + ours + `]}`:                                      "too late",
		`{"id":5,"by":99999999,"node":NODE,"leases":[]}`:                                                              "0 leases; 1 to 256 are allowed",
		`{"id":6,"by":99999999,"node":NODE,"leases":[` + strings.Repeat(ours+",", 256) + ours + `]}`:                  "257 leases",
		`{"id":7,"by":99999999,"node":NODE,"leases":[{"key":"","owner":"` + owner + `","ms":1}]}`:                     "a key of 0 bytes",
		`{"id":8,"by":99999999,"node":NODE,"leases":[{"key":"program's","owner":"field","ms":1}]}`:                    `\"field\" is no owner of lockdog`,
		`{"id":9,"by":99999999,"node":NODE,"leases":[{"key":"a","owner":"` + owner + `","ms":0}]}`:                    "0 ms; 1 to",
		`{"id":10,"by":99999999,"node":NODE,"leases":[{"key":"a","owner":"` + owner + `","ms":100000000000000000}]}`:  "100000000000000000 ms",
		`{"id":11,"by":99999999,"node":NODE,"leases":[{"key":"a","owner":"` + owner + `","holding":3}]}`:              "holding 3",
		`{"id":12,"by":99999999,"node":NODE,"leases":[{"key":"a","owner":"` + owner + `","holding":300}]}`:            "not a request",
		`{"id":15,"by":99999999,"node":"a:1","leases":[` + ours + `]}`:                                                `the client at \"a:1\"`,
		`{"id":16,"held":[` + held("release", "redisson_lock_token:{job}") + `,{}]}`:                                  `held 1: \"\" releases no lock`,
		`{"id":17,"held":[` + held("retain", "redisson_lock_token:{job}") + `]}`:                                      `\"retain\" releases no lock`,
		`{"id":18,"held":[` + held("release", "program's") + `]}`:                                                     `\"program's\" counts no tokens of \"job\"`,
		`{"id":19,"by":99999999,"node":NODE,"leases":[` + ours + `],"freed":["` + owner + `"]}`:                       "one of them is allowed",
		`{"id":20,"by":99999999,"node":NODE,"leases":[` + ours + `,{"key":"job","owner":"` + another + `","ms":1}]}`:  `lease 1: \"` + another + `\" is the owner of another client`,
		`{"id":21,"held":[` + strings.Replace(held("release", "redisson_lock_token:{job}"), owner, another, 1) + `]}`: `held 0: \"` + another + `\" is the owner of another`,
		`[]`:                           "not a request",
		strings.Repeat(" ", 128<<10):   "token too long",
		`{"id":13,"by":99999999,"le`:   "not a request",
		`{"id":"x"}`:                   "not a request",
		"\x00\xff":                     "not a request",
		`{"id":14,"by":99999999999e9}`: "not a request",
	} {
		c, r := begin(t, socket)
		go send(c, strings.Replace(line, "NODE", strconv.Quote(srv.Addr()), 1)) // the agent needn't read all of it
		if got := answer(t, r); !strings.Contains(got, want) {
			t.Errorf("%.100s: answered %s, want %s", line, got, want)
		}
		_ = c.Close()
	}
	if left := rdb.PTTL(t.Context(), "job").Val(); left < time.Second {
		t.Errorf("the lock expires in %v", left)
	}
	if left := rdb.PTTL(t.Context(), "program's").Val(); left != -1 {
		t.Errorf("a program's hash expires in %v", left)
	}
}

// TestSlowPeers: clients that don't send, don't read, or hang up hinder no other and don't keep the agent from ending.
func TestSlowPeers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, socket := start(t, srv.Client(t))
	for range 20 {
		c, _ := begin(t, socket)
		go func() { // it asks without end, and reads nothing
			line := `{"id":1,"by":99999999,"node":"` + srv.Addr() + `","leases":[{"key":"job","owner":"` + owner + `","ms":1000}]}`
			for {
				if _, err := fmt.Fprintf(c, "%x\r\n%s\n\r\n", len(line)+1, line); err != nil {
					return
				}
			}
		}()
		silent, err := net.Dial("unix", socket)
		must(t, err)
		defer func() { _ = silent.Close() }()
		gone, _ := begin(t, socket)
		_ = gone.Close()
	}
	c, err := lock.New(srv.Client(t), lock.WithAgent(socket), lock.WithLease(3*time.Second))
	must(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	l, err := c.Mutex("job").Lock(t.Context())
	must(t, err)
	for a.Status().Renewed < 3 {
		must(t, l.Err())
		time.Sleep(10 * time.Millisecond)
	}
	must(t, l.Release(t.Context()))
}

// TestListen: a new agent takes over the socket; a file that is no socket stays.
func TestListen(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	_, socket := start(t, srv.Client(t))
	old, oldReader := begin(t, socket)
	second := serve(t, srv.Client(t), socket)
	begin(t, socket)
	if n := second.Status().Sessions; n != 1 {
		t.Errorf("the second agent has %d sessions", n)
	}
	send(old, `{"id":1,"by":99999999,"node":"","leases":[{"key":"a","owner":"`+owner+`","ms":1000}]}`)
	if got := answer(t, oldReader); !strings.Contains(got, `"id":1`) {
		t.Errorf("the first agent answered %s", got)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	file := socket + ".txt"
	must(t, os.WriteFile(file, []byte("text"), 0o600))
	if _, err := agent.Listen(file, 0o600); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("listening in place of a file: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "text" {
		t.Errorf("the file: %q, %v", text, err)
	}
	left, err := os.ReadDir(filepath.Dir(socket))
	must(t, err)
	if len(left) != 2 {
		t.Errorf("in the directory: %v", left)
	}
	if _, err := agent.Listen(filepath.Dir(socket)+"/"+strings.Repeat("x", 80)+"/s", 0o600); err == nil || !strings.Contains(err.Error(), "bytes at most") {
		t.Errorf("listening at a long path: %v", err)
	}
	if _, err := agent.Listen(filepath.Join(socket, "none"), 0o600); err == nil {
		t.Error("listening in a directory that doesn't exist")
	}
}

// TestNotForARing: programs decide by themselves where a Ring has a key.
func TestNotForARing(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	if _, err := agent.New(ring, agent.Config{}); err == nil || !strings.Contains(err.Error(), "Ring") {
		t.Errorf("an agent with a Ring: %v", err)
	}
	if _, err := lock.New(ring, lock.WithAgent("/tmp/agent.sock")); err == nil || !strings.Contains(err.Error(), "Ring") {
		t.Errorf("a client with a Ring: %v", err)
	}
	for _, path := range []string{"", strings.Repeat("x", 104)} {
		one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		if _, err := lock.New(one, lock.WithAgent(path)); err == nil || !strings.Contains(err.Error(), "WithAgent") {
			t.Errorf("the path %q: %v", path, err)
		}
		_ = one.Close()
	}
}

// TestCloseWithOddPeers: peers that stop in the middle of something, or come when the agent is full, don't keep it from ending.
func TestCloseWithOddPeers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, socket := start(t, srv.Client(t))
	for _, c := range []struct{ says, want string }{
		{head + "2\r\n{\n\r\n", "not a request"},
		{"GET /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", ""}, // and never sends the body
		{head, `{"clock":`}, // and stays open
		{strings.Replace(head, "Bearer", "Basic", 1), "401 Unauthorized"},
		{"GET /v1/none HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
	} {
		peer, err := net.Dial("unix", socket)
		must(t, err)
		defer func() { _ = peer.Close() }()
		_, err = io.WriteString(peer, c.says)
		must(t, err)
		must(t, peer.SetReadDeadline(time.Now().Add(patience)))
		var got []byte
		for part := make([]byte, 4<<10); !strings.Contains(string(got), c.want); {
			n, err := peer.Read(part)
			if got = append(got, part[:n]...); err != nil {
				t.Fatalf("%q: answered %q, then %v", c.says, got, err)
			}
		}
		for c.want == "not a request" && a.Status().Sessions > 0 { // it is on its way out
			time.Sleep(time.Millisecond)
		}
	}
	must(t, a.Close(context.Background()))
	must(t, a.Close(context.Background()))
}

// TestPanic: a panic in the program's code costs the requests of one call.
func TestPanic(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var calm atomic.Bool
	_, socket := start(t, srv.Client(t, func(o *redis.Options) {
		o.OnConnect = func(context.Context, *redis.Conn) error {
			if !calm.Load() {
				panic("a hook")
			}
			return nil
		}
	}))
	c, r := begin(t, socket)
	ask := `{"id":1,"by":99999999,"node":"` + srv.Addr() + `","leases":[{"key":"a","owner":"` + owner + `","ms":1000}]}`
	send(c, ask)
	if got := answer(t, r); !strings.Contains(got, "has panicked") {
		t.Errorf("answered %s", got)
	}
	calm.Store(true)
	send(c, ask)
	if got := answer(t, r); !strings.Contains(got, `"renewed":[]}`) {
		t.Errorf("answered %s", got)
	}
}
