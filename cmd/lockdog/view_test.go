package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/internal/acl"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	hostile = "evil\x1b]0;title\a\n\u202eeman\u009b31m\u200b\ufeff\U000e0041"
)

// traced is a ctx in a trace.
func traced(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	id, err := trace.TraceIDFromHex(traceID)
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
}

func TestWho(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	c := client(t, server, lock.WithClientID("orders-7"), lock.WithTracerProvider(sdktrace.NewTracerProvider()))
	l, err := c.Mutex("orders:42").TryLock(traced(t.Context(), t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	start(t, server.Addr(), "run", "orders:42", "--wait", "forever", "--", "true")
	waits(t, rdb, "orders:42")

	r := lockdog(t, server.Addr(), nil, "who", "orders:42", "--trace-url", "https://jaeger.test/trace/{trace_id}")
	r.want(t, 0, "orders-7", "")
	for _, want := range []string{"held", l.Owner(), traceID, "https://jaeger.test/trace/" + traceID, "lease left", "waiter"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	r = lockdog(t, server.Addr(), []string{"LOCKDOG_TRACE_URL=https://jaeger.test/{trace_id}"}, "who", "orders:42", "--json")
	var v lockView
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatal(err)
	}
	if h := v.Holders[0]; v.Held != 1 || h.Token != l.Token() || h.TraceURL != "https://jaeger.test/"+traceID || h.Since.IsZero() || v.Waiting != 1 {
		t.Errorf("%+v", v)
	}
	lockdog(t, server.Addr(), nil, "ls", "--awaited").want(t, 0, "orders-7", "")
	lockdog(t, server.Addr(), nil, "ls", "[").want(t, exitUsage, "", "has a [")
	lockdog(t, server.Addr(), nil, "ls", "--longer-than", "1h").want(t, 0, "", "no lock matches")
	lockdog(t, server.Addr(), nil, "ls", "--json").want(t, 0, `"client_id":"orders-7"`, "")
}

// Neither long names nor characters that are two columns wide shift what is to their right. A lease without an end has none.
func TestLs_Columns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	long := strings.Repeat("x", 300)
	for _, name := range []string{"a", long, "订单:四十二", "日本"} {
		if err := server.Client(t).HSet(t.Context(), name, "会社:0123456789abcdef-1", 1).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r := lockdog(t, server.Addr(), nil, "ls")
	r.want(t, 0, "会社", "")
	column := -1
	for line := range strings.Lines(r.stdout) {
		if line == long+"\n" { // what follows is in a line of its own
			continue
		}
		before, _, ok := strings.Cut(line, "no end")
		if !ok {
			before, _, ok = strings.Cut(line, "LEASE LEFT")
		}
		at := ansi.StringWidth(before)
		if column < 0 {
			column = at
		}
		if !ok || at != column || len(line) > 120 {
			t.Errorf("what is left of the lease begins in column %d, want %d: %q", at, column, line)
		}
	}
	if !strings.Contains(r.stdout, "\n"+long+"\n") {
		t.Errorf("the long name is missing:\n%s", r.stdout)
	}
	lockdog(t, server.Addr(), nil, "who", "a").want(t, 0, "no end: it is held until it is released\n", "")
}

// An address is no pattern.
func TestLs_Address(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const hint = "127.0.0.1:7000 is taken for a pattern of names: the address of Redis is given with -u host:port"
	lockdog(t, server.Addr(), nil, "ls", "127.0.0.1:7000").want(t, 0, "", "no lock matches; "+hint)
	lockdog(t, "127.0.0.1:1", nil, "ls", "127.0.0.1:7000").want(t, exitUnavailable, "", hint)
	if r := lockdog(t, server.Addr(), nil, "ls", "orders:42"); strings.Contains(r.stderr, "-u") {
		t.Errorf("%q", r.stderr)
	}
}

// A Redis that doesn't answer is no free lock, and is asked once.
func TestReaders_SilentRedis(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	var asked atomic.Int64
	proxy.SetRule(func(c redistest.Chunk) redistest.Verdict {
		if c.Dir == redistest.Up && (redistest.Contains("\r\ntime\r\n")(c) || redistest.Contains("\r\nscan\r\n")(c)) {
			asked.Add(1)
			return redistest.Drop
		}
		return redistest.Pass
	})
	for _, args := range [][]string{{"who", "a"}, {"ls"}, {"graph"}, {"unlock", "a", "--force", "--yes"}} {
		asked.Store(0)
		for timeout := 300 * time.Millisecond; asked.Load() == 0; timeout *= 2 { // it may be over before the program has got to Redis
			lockdog(t, proxy.Addr(), nil, append(args, "--timeout", timeout.String())...).want(t, exitUnavailable, "", "timeout")
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%v: asked %d times", args, n)
		}
	}
}

// A key that holds something else isn't taken for a free lock, and what Redis doesn't tell isn't said: a free lock has no kind.
// A disk that is full must not look like a lock that is free.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hold(t, server.Client(t), "job")
	for _, args := range [][]string{{"who", "job"}, {"graph"}, {"ls", "--json"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd, _, stderr := program(t.Context(), t, server.Addr(), nil, args...)
		cmd.Stdout = full
		_ = cmd.Run() // its code is in ProcessState
		_ = full.Close()
		result{cmd.ProcessState.ExitCode(), "", stderr.String()}.want(t, exitOutput, "", "no space left")
	}
}

func TestWhoOfOtherKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	rdb.RPush(t.Context(), "a list", "x")
	rdb.HSet(t.Context(), "a hash", "name", "x")
	rdb.Set(t.Context(), "a text", "x", 0)
	rdb.Set(t.Context(), "a number", 5, 0)
	for _, test := range []struct {
		command, name, flags string
		code                 int
		stdout, stderr       string
	}{
		{"who", "a list", "", exitUsage, "", "type"},
		{"who", "a hash", "", exitUsage, "", "no owner"},
		{"who", "a text", "", exitUsage, "", "type"},
		{"who", "a number", "", 0, "the number 5", ""},
		{"who", "free", "", exitNo, "free", ""},
		{"who", "", "", exitUsage, "", "lockdog: invalid: the lock's name is empty"}, // of an unset variable
		{"who", "x", "--trace-url https://jaeger.test", exitUsage, "", "{trace_id}"},
		{"unlock", "", "--force --yes", exitUsage, "", "empty"},
		{"unlock", "a list", "--force --yes", exitUsage, "", "another type"},
		{"run", "a list", "-- true", exitUsage, "", "holds something else"},
	} {
		args := append([]string{test.command, test.name}, strings.Fields(test.flags)...)
		r := lockdog(t, server.Addr(), nil, args...)
		r.want(t, test.code, test.stdout, test.stderr)
		if test.name == "free" && strings.Contains(r.stdout, "mutex") {
			t.Errorf("it is said to be a mutex:\n%s", r.stdout)
		}
	}
}

// Names come from whoever can write to Redis: a terminal gets no control characters of theirs.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hold(t, server.Client(t), hostile)
	record(t, server.Client(t), "evil"+hostile, 10, hostile+"1", hostile+", 2")
	record(t, server.Client(t), "evil"+hostile, 20, hostile+", 2", hostile+"1")  // a deadlock
	server.Client(t).HSet(t.Context(), "evil\xff", "\xff:0123456789abcdef-1", 1) // not even UTF-8
	var first lockView
	if r := lockdog(t, server.Addr(), nil, "ls", "--json"); json.NewDecoder(strings.NewReader(r.stdout)).Decode(&first) != nil || first.Name != hostile {
		t.Errorf("it is another name: %q", r.stdout)
	}
	for _, args := range [][]string{
		{"ls"}, {"who", hostile}, {"ls", "--json"}, {"graph"}, {"graph", "--json"}, {"unlock", hostile}, {"run", hostile, "--", "true"},
	} {
		r := lockdog(t, server.Addr(), nil, args...)
		if all := r.stdout + r.stderr; strings.ContainsAny(all, "\x1b\a\u202e\u009b\u200b\ufeff\U000e0041") || !utf8.ValidString(all) {
			t.Errorf("%q printed raw: %q, %q", args[0], r.stdout, r.stderr)
		}
		if args[0] != "unlock" && args[0] != "run" && !strings.Contains(r.stdout, "evil") {
			t.Errorf("%q: %q", args[0], r.stdout)
		}
	}
}

func TestUnlock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	l := hold(t, rdb, "job")
	lockdog(t, server.Addr(), nil, "unlock", "job").want(t, exitUsage, "", "--force")
	lockdog(t, server.Addr(), nil, "unlock", "job", "--force").want(t, exitUsage, "", "add --yes") // stdin is empty
	answer := func(text string) result {
		cmd, stdout, stderr := program(t.Context(), t, server.Addr(), nil, "unlock", "job", "--force")
		cmd.Stdin = strings.NewReader(text)
		_ = cmd.Run() // its code is in ProcessState
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	answer("n\n").want(t, exitNo, "", "nothing was done")
	if l.Err() != nil {
		t.Fatal("it was taken away all the same")
	}
	r := answer("y\n")
	r.want(t, 0, "job was taken away from holder", "unlocked by force")
	if !strings.Contains(r.stderr, l.Owner()) {
		t.Errorf("it didn't show who loses the lock:\n%s", r.stderr)
	}
	<-l.Context().Done()
	lockdog(t, server.Addr(), nil, "unlock", "job", "--force", "--yes").want(t, 0, "job was free", "")
	lockdog(t, server.Addr(), nil, "unlock", "job", "--force", "--yes", "--json").want(t, 0, `{"name":"job","unlocked":false}`, "")
}

// Each kind can be taken away, in a Cluster, too; a number can't.
func TestUnlockKinds(t *testing.T) {
	t.Parallel()
	server := redistest.StartCluster(t, 0)
	rdb := redistest.Open(t, server.Universal())
	c, err := lock.New(rdb)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	for name, l := range map[string]lock.Locker{"mutex": c.Mutex("mutex"), "fair": c.FairMutex("fair"), "write": c.RWMutex("write"), "read": c.RWMutex("read").RLocker()} {
		lease, err := l.TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lockdog(t, server.Universal().Addrs[0], nil, "unlock", name, "--force", "--yes").want(t, 0, name+" was taken away", "")
		<-lease.Context().Done()
		_ = lease.Release(ctx) // it is lost
	}
	if err := c.Semaphore("permits").EnsurePermits(ctx, 2); err != nil {
		t.Fatal(err)
	}
	lockdog(t, server.Universal().Addrs[0], nil, "unlock", "permits", "--force", "--yes").want(t, exitNo, "", "can be taken away")
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// An operator may look without a right to write: these are the rules of docs/ACL.md.
func TestOperator(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithUser("operator", append([]string{"on", ">secret", "resetchannels"}, acl.Operator.Rules()...)...))
	hold(t, server.Client(t), "job")
	env := []string{"REDISCLI_AUTH=secret"}
	lockdog(t, server.Addr(), env, "ls", "--user", "operator").want(t, 0, "holder", "")
	lockdog(t, server.Addr(), env, "who", "job", "--user", "operator").want(t, 0, "holder", "")
	record(t, server.Client(t), "waiter", 10, "job", "mine")
	record(t, server.Client(t), "other", 20, "mine", "theirs")
	lockdog(t, server.Addr(), env, "graph", "--user", "operator").want(t, 0, "job (mutex), held by holder", "")
	lockdog(t, server.Addr(), env, "unlock", "job", "--force", "--yes", "--user", "operator").want(t, exitUnavailable, "", "NOPERM")
	lockdog(t, server.Addr(), env, "run", "free", "--user", "operator", "--", "true").want(t, exitUnavailable, "", "NOPERM")
	lockdog(t, server.Addr(), []string{"REDISCLI_AUTH=wrong"}, "ls", "--user", "operator").want(t, exitUnavailable, "", "check the user (operator)")
}

// A replica can be looked at, and says that it can't be written.
func TestReplica(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	hold(t, r.Primary.Client(t), "job")
	address := r.Replicas[0].Addr()
	until(t, "the replica has the lock", func() bool { return r.Replicas[0].Client(t).Exists(t.Context(), "job").Val() == 1 })
	lockdog(t, address, nil, "who", "job").want(t, 0, "holder", "")
	lockdog(t, address, nil, "run", "free", "--", "true").want(t, exitUnavailable, "", "READONLY")
	lockdog(t, address, nil, "unlock", "job", "--force", "--yes").want(t, exitUnavailable, "", "READONLY")
}
