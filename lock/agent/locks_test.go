package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
)

// request sends an HTTP request to an agent. Its connection is closed with the answer's body.
func request(t *testing.T, socket, method, path string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, method, "http://x"+path, http.NoBody)
	must(t, err)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	limit := time.AfterFunc(patience, cancel)
	resp, err := client.Do(req)
	must(t, err)
	t.Cleanup(func() {
		limit.Stop()
		cancel()
		_ = resp.Body.Close()
	})
	return resp
}

// line is a line of an answer.
type line struct {
	Name, Kind, Owner, Lost, Error string
	Token                          int64
	Deadline                       time.Time
	Until                          float64
}

// holding is a connection that holds a lock.
type holding struct {
	line
	resp  *http.Response
	lines *bufio.Scanner
}

// hold takes a lock by a connection.
func hold(t *testing.T, socket, path string) *holding {
	t.Helper()
	h := &holding{resp: request(t, socket, http.MethodPost, "/v1/locks/"+path)}
	h.lines = bufio.NewScanner(h.resp.Body)
	h.line = h.next(t)
	if h.resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", path, h.resp.Status, h.Error)
	}
	return h
}

func (h *holding) next(t *testing.T) (l line) {
	t.Helper()
	if !h.lines.Scan() {
		t.Fatalf("the answer has ended: %v", h.lines.Err())
	}
	must(t, json.Unmarshal(h.lines.Bytes(), &l))
	return l
}

// lost waits for the line that says so.
func (h *holding) lost(t *testing.T) (how string) {
	t.Helper()
	for {
		if l := h.next(t); l.Lost != "" {
			return l.Lost
		}
	}
}

// letGo closes the connection.
func (h *holding) letGo() { _ = h.resp.Body.Close() }

// refused asks for a lock that there isn't.
func refused(t *testing.T, socket, path string, status int, want string) {
	t.Helper()
	resp := request(t, socket, http.MethodPost, "/v1/locks/"+path)
	body, err := bufio.NewReader(resp.Body).ReadString('\n')
	must(t, err)
	if resp.StatusCode != status || !strings.Contains(body, want) {
		t.Errorf("%s: %s: %s, want %d: %s", path, resp.Status, body, status, want)
	}
}

// client is one of package lock.
func client(t *testing.T, rdb redis.UniversalClient, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.New(rdb, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close(context.Background())) })
	return c
}

// TestHeldByConnection: a lock is held as long as the connection that took it is open, beside those of package lock.
func TestHeldByConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, socket := start(t, srv.Client(t))
	c := client(t, srv.Client(t))

	h := hold(t, socket, "order%2F1?lease=3s&note=a%20test")
	if h.Name != "order/1" || h.Kind != "mutex" || h.Token == 0 || time.Until(h.Deadline) > 3*time.Second || int64(h.Until*1000+.5) != h.Deadline.UnixMilli() {
		t.Errorf("the first line: %+v", h.line)
	}
	var held *lock.HeldError
	if _, err := c.Mutex("order/1").TryLock(t.Context()); !errors.As(err, &held) || held.Owner != h.Owner {
		t.Errorf("another: %v", err)
	}
	refused(t, socket, "order/1", http.StatusLocked, `lock \"order/1\" is held by \"`+h.Owner)
	for range 7 { // longer than a connection may take to send a request
		if l := h.next(t); !l.Deadline.After(h.Deadline) || time.Until(l.Deadline) > 3*time.Second || l.Name+l.Lost+l.Error != "" {
			t.Errorf("a later line: %+v", l)
		} else {
			h.Deadline = l.Deadline
		}
	}
	if s := a.Status(); s.Held != 1 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}

	waiting := make(chan *holding)
	go func() { waiting <- hold(t, socket, "order%2F1?wait=1h") }()
	for a.Status().Sessions < 2 {
		time.Sleep(time.Millisecond)
	}
	h.letGo()
	next := <-waiting
	if next.Token <= h.Token || next.Owner == h.Owner {
		t.Errorf("the next holder: %+v", next.line)
	}
	next.letGo()
	l, err := c.Mutex("order/1").Lock(t.Context())
	must(t, err)
	conn := raw(t, socket, "order%2F1?wait=1h", "x") // and doesn't wait any more
	for a.Status().Sessions == 0 {
		time.Sleep(time.Millisecond)
	}
	_ = conn.Close()
	for a.Status().Sessions != 0 {
		time.Sleep(time.Millisecond)
	}
	must(t, l.Release(t.Context()))
	conn = raw(t, socket, "order/1?lease=1h", "another request, which is no request")
	for a.Status().Held == 0 {
		time.Sleep(time.Millisecond)
	}
	_ = conn.Close()
	l, err = c.Mutex("order/1").Lock(t.Context())
	must(t, err)
	must(t, l.Release(t.Context()))
}

// raw asks for a lock, and sends more.
func raw(t *testing.T, socket, path, more string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "POST /v1/locks/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n%s", path, more)
	must(t, err)
	return c
}

// TestPeerThatReadsNothing: its lock isn't free before the last deadline that it was told.
func TestPeerThatReadsNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, err := agent.New(srv.Client(t), agent.Config{})
	must(t, err)
	path := filepath.Join(t.TempDir(), "s")
	l, err := agent.Listen(path, 0o600)
	must(t, err)
	narrow := &narrowListener{l.(*net.UnixListener)} //nolint:forcetypeassert // see Listen
	served := make(chan error, 1)
	go func() { served <- a.Serve(narrow) }()
	t.Cleanup(func() {
		must(t, a.Close(context.Background()))
		must(t, <-served)
	})
	c := raw(t, path, "job?lease=3s&note=", "")
	for a.Status().Held == 0 {
		time.Sleep(time.Millisecond)
	}
	next, err := client(t, srv.Client(t)).Mutex("job").Lock(t.Context())
	must(t, err)
	granted := time.Now()
	must(t, next.Release(t.Context()))
	must(t, c.SetReadDeadline(granted.Add(patience)))
	text, err := io.ReadAll(c)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last line
	for _, text := range lines {
		_ = json.Unmarshal([]byte(text), &last) // not the header, and perhaps not the last one
	}
	if len(lines) < 8 || granted.Before(last.Deadline) {
		t.Errorf("another has it %v before the end of what was told in %d lines", last.Deadline.Sub(granted), len(lines))
	}
}

// narrowListener gives its connections as little room as possible for what isn't read.
type narrowListener struct{ *net.UnixListener }

func (l *narrowListener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err == nil {
		err = c.SetWriteBuffer(1)
	}
	return c, err
}

// TestLostByConnection: a connection that holds a lock is told when it is lost, and when the agent ends.
func TestLostByConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	a, socket := start(t, rdb)
	h := hold(t, socket, "job?lease=3s")
	must(t, rdb.Del(t.Context(), "job").Err())
	if how := h.lost(t); !strings.Contains(how, "lost: missing") {
		t.Errorf("lost: %s", how)
	}
	if h.lines.Scan() {
		t.Errorf("after the loss: %s", h.lines.Bytes())
	}

	stops, stays := hold(t, socket, "stops"), hold(t, socket, "stays?lease=1h")
	ctx, giveUp := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- a.Close(ctx) }()
	for _, h := range []*holding{stops, stays} {
		if how := h.lost(t); how != "the agent ends" {
			t.Errorf("%s: lost: %s", h.Name, how)
		}
	}
	stops.letGo()
	c := client(t, srv.Client(t))
	l, err := c.Mutex("stops").Lock(t.Context())
	must(t, err)
	must(t, l.Release(t.Context()))
	giveUp()
	if err := <-closed; err == nil || !strings.Contains(err.Error(), "stays") {
		t.Errorf("Close: %v", err)
	}
	if stays.lines.Scan() {
		t.Errorf("the connection: %s", stays.lines.Bytes())
	}
	if _, err := c.Mutex("stays").TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a lock whose holder may not have stopped: %v", err)
	}
}

// TestKindsByConnection: all kinds exclude whom they should.
func TestKindsByConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	_, socket := start(t, srv.Client(t))
	note := strings.Repeat("n", 256)
	for taken, try := range map[string]map[string]bool{
		"a?kind=mutex&note=" + note:  {"a": false},
		"b?kind=fair":                {"b?kind=fair": false},
		"c?kind=read":                {"c?kind=read": true, "c?kind=write": false},
		"d?kind=write":               {"d?kind=read": false, "d?kind=write": false},
		"e?kind=semaphore&permits=2": {"e?kind=semaphore&permits=2": true},
		"f?kind=semaphore&permits=1": {"f?kind=semaphore&permits=1": false},
	} {
		first := hold(t, socket, taken)
		for path, ok := range try {
			if ok {
				hold(t, socket, path).letGo()
			} else {
				refused(t, socket, path, http.StatusLocked, first.Name)
			}
		}
	}
	for path, want := range map[string]string{
		"a?lock=b":                     `\"lock\": kind, lease, note, permits and wait are allowed`,
		"a?wait=1s&wait=2s":            "once each",
		"a?wait=%zz":                   "the query",
		"a?wait=long":                  `wait=\"long\": must be a duration such as 30s`,
		"a?wait=-1s":                   "wait=-1s: must not be negative",
		"":                             "name",
		"a?lease=1ms":                  "1ms",
		"a?kind=latch":                 `kind=\"latch\": must be mutex, fair, read, write or semaphore`,
		"a?permits=3":                  "only with kind=semaphore",
		"a?kind=semaphore":             `permits=\"\": must be a number`,
		"a?kind=semaphore&permits=-3":  `permits=\"-3\": must be a number, 1 or more`,
		"a?kind=semaphore&permits=0":   "1 or more",
		"a?note=" + note + "n":         "a note of 257 bytes; 256 are allowed",
		"f?kind=semaphore&permits=2":   "another total",
		strings.Repeat("x", 1025):      "1025 bytes",
		"a?wait=1s&lease=" + "%FF%FE":  "must be a duration",
		"a?kind=semaphore&permits=1e3": "must be a number",
	} {
		refused(t, socket, path, http.StatusBadRequest, want)
	}
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = nowhere.Close() })
	_, socket = start(t, nowhere)
	refused(t, socket, "a", http.StatusServiceUnavailable, "unavailable")
}

// TestListOfLocks: an agent lists what its user holds, by a connection or by a client of package lock.
func TestListOfLocks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, socket := start(t, srv.Client(t))
	list := func() (all []string) {
		var answer struct {
			Locks []struct {
				Name, Kind, Owner, Note string
				Token                   int64
				PID, UID                int
				Since, Deadline         time.Time
			}
		}
		must(t, json.NewDecoder(request(t, socket, http.MethodGet, "/v1/locks").Body).Decode(&answer))
		for _, l := range answer.Locks {
			if l.PID != os.Getpid() || l.UID != os.Getuid() || l.Owner == "" || (l.Token > 0) != l.Deadline.After(l.Since) {
				t.Errorf("listed: %+v", l)
			}
			all = append(all, fmt.Sprintf("%s %s %q", l.Name, l.Kind, l.Note))
		}
		return all
	}
	if got := list(); got != nil {
		t.Errorf("listed: %q", got)
	}
	h := hold(t, socket, "b?note=nightly&kind=write")
	l, err := client(t, srv.Client(t), lock.WithAgent(socket)).Mutex("a").Lock(t.Context())
	must(t, err)
	for a.Status().Held != 2 {
		time.Sleep(time.Millisecond)
	}
	if got := list(); !slices.Equal(got, []string{`a mutex ""`, `b write "nightly"`}) {
		t.Errorf("listed: %q", got)
	}
	h.letGo()
	must(t, l.Release(t.Context()))
	for a.Status().Held != 0 {
		time.Sleep(time.Millisecond)
	}
	if got := list(); got != nil {
		t.Errorf("listed: %q", got)
	}
}

// TestPolicy: users take what the policy lets them take, as it is now.
func TestPolicy(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	file := filepath.Join(t.TempDir(), "policy.json")
	write := func(text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
	for text, want := range map[string]string{"": "no such file", "[]": "must be such as", `{"a":"b"}`: "must be such as", `{"a":["b*c"]}`: "one * at its end", `{"a":["**"]}`: "one *", `{"a":[""]}`: "must be a name"} {
		if write(text); text == "" {
			must(t, os.Remove(file))
		}
		if _, err := agent.New(rdb, agent.Config{Policy: file}); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the policy %q: %v", text, err)
		}
	}
	write("{}")
	var logged strings.Builder
	a, err := agent.New(rdb, agent.Config{Policy: file, Options: []lock.Option{lock.WithKeyPrefix("app:")}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	must(t, err)
	socket := serving(t, a, filepath.Join(t.TempDir(), "s"))
	refused(t, socket, "a", http.StatusForbidden, `take \"a\"`)
	for policy, names := range map[string]map[string]bool{
		`{"*": ["a", "b:*"]}`:                                       {"a": true, "a1": false, "b:": true, "b:1": true, "b": false},
		fmt.Sprintf(`{"%d": ["*"]}`, os.Getuid()):                   {"a": true},
		fmt.Sprintf(`{"%d": ["*"], "nobody1": []}`, os.Getuid()+1):  {"a": false},
		fmt.Sprintf(`{"%d": ["a"], "*": ["b"]}`, os.Getuid()):       {"a": true, "b": true, "*": false},
		fmt.Sprintf(`{"": ["*"], "%d": [], "**": []}`, os.Getuid()): {"a": false},
	} {
		write(policy)
		for name, ok := range names {
			if ok {
				hold(t, socket, name).letGo()
			} else {
				refused(t, socket, name, http.StatusForbidden, "the policy doesn't let user")
			}
		}
	}
	write("{")
	refused(t, socket, "a", http.StatusForbidden, "can't read its policy")
	if !strings.Contains(logged.String(), "unexpected end of JSON") {
		t.Errorf("logged:\n%s", logged.String())
	}
	if n := rdb.Exists(t.Context(), "a").Val(); n != 0 {
		t.Error("the key has no prefix")
	}
}

// TestTraceOfConnection: what a lock costs is in the trace of whoever asked for it.
func TestTraceOfConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	spans := tracetest.NewInMemoryExporter()
	a, err := agent.New(srv.Client(t), agent.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	must(t, err)
	c, err := net.Dial("unix", serving(t, a, filepath.Join(t.TempDir(), "s")))
	must(t, err)
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	_, err = io.WriteString(c, "POST /v1/locks/job HTTP/1.1\r\nHost: x\r\nTraceparent: 00-"+traceID+"-b7ad6b7169203331-01\r\n\r\n")
	must(t, err)
	for a.Status().Held == 0 {
		time.Sleep(time.Millisecond)
	}
	_ = c.Close()
	for a.Status().Sessions > 0 {
		time.Sleep(time.Millisecond)
	}
	var names []string
	for _, s := range spans.GetSpans() {
		if s.SpanContext.TraceID().String() == traceID {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	if want := []string{"acquire default", "held default", "hold default", "release default"}; !slices.Equal(names, want) {
		t.Errorf("in the trace: %q, want %q", names, want)
	}
}
