package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// acts are the lines that each act must show, in this order. {orders} stands for its owner.
var acts = []string{
	`(?m)^1\. orders takes the lock order:42`,
	`orders   acquire  order:42 taken in .*, token \d{16}`,
	`(?m)^2\. While orders works`,
	`orders   renew    #1 \[=+ +\] \d[\d.]*m?s left: renewed in .*, lag `,
	`orders   renew    #2 \[=+ +\] \d[\d.]*m?s left: renewed in .*, lag `,
	`orders   renew    #3 \[=+ +\] \d[\d.]*m?s left: renewed in .*, lag `,
	`(?m)^3\. billing wants the same lock`,
	`billing  waiting  order:42 is held by {orders}`,
	`(?m)^4\. .*Renewals fail`,
	`orders   renew    #\d+ .*left: attempt 1 failed, (loading|network)`,
	`orders   renew    #\d+ .*left: attempt 2 failed, (loading|network)`,
	`redis    answers  again`,
	`orders   renew    #\d+ .*left: renewed in .*, at attempt \d+`,
	`(?m)^5\. orders is done`,
	`(?s)orders   release  order:42 released in .*?billing  renew `, // between them, in any order, what anywhere lists
	`(?m)^6\. An operator`,
	`billing  lost     order:42, cause: forced`,
	`lock lost .*name=order:42 .*token=\d{16} cause=forced .*trace_id=[0-9a-f]{32}`,
	`billing  ctx      ended: lockdog: lease of lock "order:42" lost: forced: ForceUnlock by "operator"`,
	`What Prometheus would read`,
	`lockdog_acquisitions_total +acquired 2\n`,
	`lockdog_renewals_total +error \d+  missing 1  renewed \d+\n`,
	`lockdog_losses_total +forced 1\n`,
	`lockdog_releases_total +released 1\n`,
}

// anywhere are lines whose place is left open.
var anywhere = []string{
	`billing  acquire  order:42 taken in .*, token \d{16}, blocked by {orders}`,
	`orders   hold     order:42 was held for .*, until released`,
	`billing  hold     order:42 was held for .*, until lost`,
}

// readStory checks that text tells it.
func readStory(t *testing.T, text string) {
	t.Helper()
	owners := strings.NewReplacer("{orders}", `orders:[0-9a-f]{16}-\d+`)
	rest := text
	for _, act := range acts {
		at := regexp.MustCompile(owners.Replace(act)).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("not shown, or not in its place: %s\n\n%s", act, text)
		}
		rest = rest[at[1]:]
	}
	for _, line := range anywhere {
		if !regexp.MustCompile(owners.Replace(line)).MatchString(text) {
			t.Errorf("not shown: %s\n\n%s", line, text)
		}
	}
	if strings.Contains(text, "\x1b[") {
		t.Error("colour in what is no terminal")
	}
}

func TestStory(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var out, errs bytes.Buffer
	if code := run(t.Context(), nil, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s\n%s", code, &errs, &out)
	}
	if took := time.Since(start); took > storyTime {
		t.Errorf("took %v", took)
	}
	readStory(t, out.String())
}

// TestStoryOnRealRedis also stays for the metrics, until it is interrupted.
func TestStoryOnRealRedis(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var errs bytes.Buffer
	out := &watched{text: "report:daily taken", found: make(chan struct{})}
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-redis", addr, "-metrics", "127.0.0.1:0"}, out, &errs) }()

	select {
	case <-out.found:
	case c := <-code:
		t.Fatalf("exit code %d: %s\n%s", c, &errs, &out.buf)
	}
	metrics := regexp.MustCompile(`http://\S+/metrics`).FindString(out.String())
	if page := get(t, metrics); !strings.Contains(page, `lockdog_held{lockdog_group="report"} 1`) {
		t.Errorf("GET %s:\n%s", metrics, page)
	}
	locks := regexp.MustCompile(`http://\S+/debug/locks`).FindString(out.String())
	if page := get(t, locks); !strings.Contains(page, "<bdi>report:daily</bdi>") || !strings.Contains(page, "2 clients") {
		t.Errorf("GET %s:\n%s", locks, page)
	}
	interrupt()
	if c := <-code; c != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d: %s", c, &errs)
	}
	readStory(t, out.String())

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	left, err := rdb.Keys(context.Background(), "*").Result()
	for _, key := range left {
		if !strings.HasPrefix(key, keyPrefix+"lockdog:fence:") {
			t.Errorf("left behind: %s", key)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var errs bytes.Buffer
	out := &watched{text: "renew    #1", found: make(chan struct{})}
	code := make(chan int, 1)
	go func() { code <- run(ctx, nil, out, &errs) }()
	<-out.found
	interrupt()
	if c := <-code; c != exitInterrupted || errs.String() != "quickstart: interrupted\n" {
		t.Errorf("exit code %d: %s\n%s", c, &errs, out)
	}
}

// TestEmbeddedExpires shows that leases run out on the embedded Redis, as miniredis left alone has them never do.
func TestEmbeddedExpires(t *testing.T) {
	t.Parallel()
	r, err := startRedis(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	rdb := r.client()
	defer func() { _ = rdb.Close() }()
	if err := rdb.Set(t.Context(), "a", "b", 200*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		n, err := rdb.Exists(t.Context(), "a").Result()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("200 ms last longer than 10 s")
		}
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-h"}, 0, "-otlp ENDPOINT"},
		{[]string{"-x"}, exitUsage, "-x"},
		{[]string{"now"}, exitUsage, `"now"`},
		{[]string{"-redis", "localhost"}, exitUsage, "host:port"},
		{[]string{"-redis", "http://localhost:1"}, exitUsage, "http"},
		{[]string{"-redis", ""}, exitUsage, `"" for flag -redis: want host:port`},
		{[]string{"-metrics", "9464"}, exitUsage, "host:port"},
		{[]string{"-otlp", "ftp://localhost"}, exitUsage, "ftp://localhost"},
		{[]string{"-metrics", "256.0.0.1:1"}, exitFailed, "-metrics 256.0.0.1:1"},
		{[]string{"-redis", "127.0.0.1:1"}, exitFailed, "no Redis at 127.0.0.1:1"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), test.args, &out, &errs)
			says, silent := &errs, &out
			if test.code == 0 {
				says, silent = &out, &errs
			}
			if code != test.code || !strings.Contains(says.String(), test.says) || silent.Len() > 0 {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
			}
		})
	}
}

func TestTracingOff(t *testing.T) {
	t.Setenv("OTEL_SDK_DISABLED", "true")
	var out, errs bytes.Buffer
	if code := run(t.Context(), nil, &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "OTEL_SDK_DISABLED") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}

// TestColour draws on something that looks like a terminal.
func TestColour(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	t.Setenv("NO_COLOR", "")
	if p := newPrinter(null); !p.colour || p.paint(red, "x") != "\x1b[91mx\x1b[0m" {
		t.Error("no colour on a terminal")
	}
	t.Setenv("NO_COLOR", "1")
	if p := newPrinter(null); p.colour || p.paint(red, "x") != "x" {
		t.Error("colour in spite of NO_COLOR")
	}
}
