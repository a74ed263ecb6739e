package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/changes"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/screen"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
)

// url is the address of a server.
func url(s *redistest.Server) string { return "redis://" + s.Addr() }

// client takes locks as a program does.
func client(t *testing.T, s *redistest.Server, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.New(s.Client(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Log(err) // the server may be gone
		}
	})
	return c
}

// keep takes a lock that is free, until the end of the test at the latest: Client.Close waits for leases.
func keep(t *testing.T, m *lock.Mutex) *lock.Lease {
	t.Helper()
	l, err := m.TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) }) // it may be released, or lost
	return l
}

func release(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// watched is a lockdog watch --json that runs.
type watched struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *json.Decoder
	stderr *bytes.Buffer
}

func startWatch(t *testing.T, s *redistest.Server, args ...string) *watched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	cmd, _, stderr := program(ctx, t, url(s), nil, append([]string{"watch", "--json", "--interval", "200ms", "--timeout", "1m"}, args...)...)
	cmd.Stdout = nil
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &watched{t, cmd, json.NewDecoder(pipe), stderr}
}

// next is the next event.
func (w *watched) next() change {
	w.t.Helper()
	var c change
	if err := w.lines.Decode(&c); err != nil {
		w.t.Fatalf("the output ended: %v; stderr: %s", err, w.stderr)
	}
	return c
}

// want checks the next event.
func (w *watched) want(name string, what changes.What) change {
	w.t.Helper()
	c := w.next()
	if c.Name != name || c.Event != what || c.Time.IsZero() {
		w.t.Fatalf("got %+v, want %s of %q", c, what, name)
	}
	return c
}

// interrupt ends it as Ctrl-C does.
func (w *watched) interrupt() {
	w.t.Helper()
	w.signal()
	w.ends()
}

func (w *watched) signal() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		w.t.Fatal(err)
	}
}

// ends checks that the signal has ended it.
func (w *watched) ends() {
	w.t.Helper()
	_ = w.cmd.Wait()
	if code := codeOf(w.cmd.ProcessState); code != exitSignal+int(syscall.SIGINT) || w.stderr.Len() > 0 {
		w.t.Errorf("exit code %d; stderr: %s", code, w.stderr)
	}
}

func TestWatch_Events(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := client(t, s, lock.WithClientID("first"))
	first := keep(t, c.Mutex("a"))
	keep(t, c.Mutex("other"))
	const interval = 2 * time.Second // far longer than a reading takes
	w := startWatch(t, s, "a*", "--interval", interval.String())
	if e := w.want("a", changes.Held); e.Held != 1 || len(e.Holders) != 1 || e.Holders[0].ClientID != "first" || e.Holders[0].Token != first.Token() || !e.After.IsZero() {
		t.Errorf("held: %+v", e)
	}

	second := make(chan *lock.Lease, 1)
	go func() {
		l, err := client(t, s, lock.WithClientID("second")).Mutex("a").Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	if e := w.want("a", changes.WaitBegan); e.Waiting != 1 {
		t.Errorf("wait_began: %+v", e)
	}
	release(t, first)
	e := w.want("a", changes.HandOver)
	if e.Holders[0].ClientID != "second" || e.Before[0].ClientID != "first" || e.After.IsZero() || !e.After.Before(e.Time) {
		t.Errorf("hand_over: %+v", e)
	}
	w.want("a", changes.WaitEnded)
	release(t, <-second)
	if e := w.want("a", changes.Gone); e.Held != 0 || len(e.Holders) != 0 || e.Before[0].ClientID != "second" || e.MayHaveExpired {
		t.Errorf("gone: %+v", e)
	}

	w.interrupt()
}

// That a lease may have run out is said of a hand-over, too.
func TestWatch_MayHaveExpired(t *testing.T) {
	t.Parallel()
	if c := changeOf(&changes.Event{What: changes.HandOver, MayHaveExpired: true}); !c.MayHaveExpired {
		t.Errorf("%+v", c)
	}
}

// A signal is what ends it, whatever a reading comes to at that moment.
func TestWatch_SignalDuringReading(t *testing.T) {
	t.Parallel()
	reader, err := fleet.New(redistest.Start(t).Client(t), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signalError(syscall.SIGINT))
	for range 20 {
		var out bytes.Buffer
		w := &watch{app: &app{stdout: &out}, interval: leastInterval}
		readings := make(chan screen.Reading, 1)
		w.read(ctx, reader, readings)
		err := w.inLines(ctx, readings)
		if code := exitCode(ctx, err); code != exitSignal+int(syscall.SIGINT) || out.Len() > 0 {
			t.Fatalf("exit code %d, %v, and it said %q", code, err, &out)
		}
	}
}

func TestWatch_RedisAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	// As a lock of Redisson's, which no client of ours renews.
	const owner = "0123abcd-0000-0000-0000-00000000abcd:1"
	put := func(name string) {
		t.Helper()
		if err := rdb.HSet(t.Context(), name, owner, 1).Err(); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	w := startWatch(t, s)
	if e := w.want("a", changes.Held); !e.Holders[0].Redisson {
		t.Errorf("held: %+v", e)
	}
	s.Kill(t)
	if e := w.want("", readingFailed); e.Error == "" || strings.Contains(e.Error, "\n") {
		t.Errorf("reading_failed: %+v", e)
	}
	s.Restart(t, redistest.LoseData)
	put("b")
	// The server came back without the lock, and perhaps was read before there was another.
	seen := map[changes.What]bool{}
	for !seen[changes.Gone] || !seen[changes.Acquired] || !seen[readingAgain] {
		e := w.next()
		if name := map[changes.What]string{changes.Gone: "a", changes.Acquired: "b", readingAgain: ""}; name[e.Event] != e.Name || seen[e.Event] {
			t.Fatalf("after it came back: %+v", e)
		}
		seen[e.Event] = true
	}
	w.interrupt()
}

func TestWatch_Lines(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	keep(t, client(t, s, lock.WithClientID("c")).Mutex("evil\x1b[2J"))
	lockdog(t, url(s), nil, "watch", "[").want(t, exitUsage, "", `the pattern "[" has a [`)
	r := lockdog(t, url(s), nil, "watch", "--count", "2", "--interval", "200ms")
	r.want(t, 0, "  held            evil\\x1b[2J  held by c\n", "")
	if n := strings.Count(r.stdout, "\n"); n != 1 || r.stderr != "" {
		t.Errorf("%d lines; stderr: %s", n, r.stderr)
	}
}

// output is what a terminal was sent.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // has room for one
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits for a text.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	limit := time.After(patience)
	for !strings.Contains(ansi.Strip(o.String()), text) {
		select {
		case <-o.more:
		case <-limit:
			t.Fatalf("no %q on the terminal: %q", text, o.String())
		}
	}
}

// The screen on a real terminal: it starts, shows a lock, is drawn anew at another size, and leaves the terminal as it was.
func TestWatch_Terminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	keep(t, client(t, s).Mutex("orders:42"))
	for name, end := range map[string]struct {
		keys string
		sig  os.Signal
		code int
	}{
		"q":       {"q", nil, 0},
		"Ctrl-C":  {"\x03", nil, 0},
		"SIGTERM": {"", syscall.SIGTERM, exitSignal + int(syscall.SIGTERM)},
	} {
		t.Run(name, func(t *testing.T) {
			terminal, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = terminal.Close() }()
			if err := pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
				t.Fatal(err)
			}
			before, err := term.GetState(int(tty.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			cmd, _, stderr := program(t.Context(), t, url(s), []string{"TERM=xterm-256color"}, "watch", "--interval", "200ms")
			cmd.Stdin, cmd.Stdout = tty, tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out := &output{more: make(chan struct{}, 1)}
			copied := make(chan struct{})
			go func() {
				defer close(copied)
				_, _ = io.Copy(out, terminal) // until nobody has the terminal open
			}()
			out.await(t, "orders:42")
			out.await(t, "1 held")
			if strings.Contains(out.String(), "too small") {
				t.Error("24 lines are too small")
			}
			if err := pty.Setsize(terminal, &pty.Winsize{Rows: 3, Cols: 80}); err != nil {
				t.Fatal(err)
			}
			out.await(t, "too small")
			if end.sig != nil {
				err = cmd.Process.Signal(end.sig)
			} else {
				_, err = terminal.WriteString(end.keys)
			}
			if err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := codeOf(cmd.ProcessState); code != end.code || stderr.Len() > 0 {
				t.Errorf("exit code %d, want %d; stderr: %s", code, end.code, stderr)
			}
			after, err := term.GetState(int(tty.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(*after) != fmt.Sprint(*before) {
				t.Errorf("the terminal's settings were %v and are %v", *before, *after)
			}
			_ = tty.Close()
			<-copied
			text := out.String()
			for on, off := range map[string]string{"\x1b[?1049h": "\x1b[?1049l", "\x1b[?25l": "\x1b[?25h"} { // the other screen, the hidden cursor
				if strings.LastIndex(text, on) < 0 || strings.LastIndex(text, off) < strings.LastIndex(text, on) {
					t.Errorf("%q isn't undone by %q: %q", on, off, text)
				}
			}
		})
	}
}

// At its end it says for which groups was waited, and how long.
func TestWatch_Waited(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := keep(t, client(t, s).Mutex("orders:42"))
	keep(t, client(t, s).Mutex("idle:1"))
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	wait := func(name string) {
		waiter := client(t, s).Mutex(name)
		waiters.Go(func() {
			if l, err := waiter.Lock(ctx); err == nil {
				t.Errorf("it got %s", l.Name())
			}
		})
	}
	defer func() { cancel(); waiters.Wait() }()
	wait("orders:42")
	waits(t, s.Client(t), l.Name())
	r := lockdog(t, url(s), nil, "watch", "--json", "--count", "4", "--interval", "300ms")
	r.want(t, 0, "", "")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	var last change
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Event != groupsWaited || len(last.Groups) != 1 || last.After.IsZero() || last.Time.Sub(last.After) < 900*time.Millisecond {
		t.Fatalf("%+v", last)
	}
	if g := last.Groups[0]; g.Group != "orders" || g.Waiting != 1 || g.WaitedMS < 800 || time.Duration(g.WaitedMS)*time.Millisecond > last.Time.Sub(last.After) {
		t.Errorf("%+v", g)
	}
	r = lockdog(t, url(s), nil, "watch", "--count", "3", "--interval", "200ms")
	r.want(t, 0, "  waited          -  since ", "")
	if !regexp.MustCompile(`: orders \d+\.?\d*m?s`).MatchString(r.stdout) {
		t.Errorf("%s", r.stdout)
	}

	w := startWatch(t, s) // which a signal ends, after its second reading
	w.next()
	wait("idle:1")
	for w.next().Event != changes.WaitBegan {
	}
	w.signal()
	if e := w.next(); e.Event != groupsWaited || e.Groups[0].Group != "orders" {
		t.Errorf("at a signal: %+v", e)
	}
	w.ends()
}

// Redis that goes away is no "no".
func TestWatchWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := start(t, server.Addr(), "watch", "--count", "20", "--interval", "200ms", "--timeout", "2s")
	until(t, "it has looked", func() bool {
		return strings.Contains(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_scan:calls=")
	})
	server.Kill(t)
	s.end(t).want(t, exitUnavailable, "", "")
}
