package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestStaleWrite is what a token is for.
func TestStaleWrite(t *testing.T) {
	t.Parallel()
	s := store{redistest.Start(t).Client(t), "test:"}
	ctx := t.Context()
	// The 16 digits of real tokens, next to each other.
	const token = 1_764_000_000_000_000
	for _, step := range []struct {
		o    order
		want error
	}{
		{order{ID: "1", Version: 1, Token: token + 1}, nil},
		{order{ID: "1", Version: 2, Token: token}, errStale},
		{order{ID: "1", Version: 3, Token: token + 2}, nil},
	} {
		if err := s.put(ctx, step.o); !errors.Is(err, step.want) {
			t.Errorf("put %+v: %v, want %v", step.o, err, step.want)
		}
	}
	if o, err := s.get(ctx, "1"); err != nil || o.Version != 3 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestChaosShare counts what a hook lets through, of single commands and of pipelines.
func TestChaosShare(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	rdb.AddHook(newChaos(0.25, newRand(1, streamChaos)))
	ctx := t.Context()
	const (
		calls  = 2000
		script = "return redis.call('INCR', KEYS[1])"
	)
	failed := 0
	for n := range calls {
		var cmd *redis.Cmd
		if n%2 == 0 {
			cmd = rdb.Eval(ctx, script, []string{"n"})
		} else {
			pipe := rdb.Pipeline()
			cmd = pipe.Eval(ctx, script, []string{"n"})
			_, _ = pipe.Exec(ctx)
		}
		if cmd.Err() != nil {
			failed++
		}
	}
	reached, err := rdb.Get(ctx, "n").Int() // no script
	if err != nil {
		t.Fatal(err)
	}
	if failed < calls/5 || failed > calls*3/10 {
		t.Errorf("%d of %d calls failed, want a quarter", failed, calls)
	}
	if lost := reached - (calls - failed); lost < failed*4/10 || lost > failed*6/10 {
		t.Errorf("of %d failed calls %d reached Redis, want half", failed, lost)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args string
		code int
		says string
	}{
		{"-h", 0, "-chaos SHARE"},
		{"-x", exitUsage, "-x"},
		{"now", exitUsage, `"now"`},
		{"-addr 8080", exitUsage, "host:port"},
		{"-redis localhost", exitUsage, "host:port"},
		{"-redis http://localhost:1", exitUsage, "http"},
		{"-hold 0s", exitUsage, "-hold"},
		{"-workers -1", exitUsage, "-workers"},
		{"-load NaN", exitUsage, "-load"},
		{"-chaos 1.1", exitUsage, "-chaos"},
		{"-peers localhost:8081", exitUsage, "-peers"},
		{"-otlp ftp://localhost", exitUsage, "ftp://localhost"},
		{"-lease 1ms", exitUsage, "-lease 1ms"},
		{"-trace-url jaeger:16686/{trace_id}", exitUsage, "-trace-url"},
		{"-trace-url http://localhost:16686/trace/", exitUsage, "{trace_id}"},
		{"-addr 256.0.0.1:1", exitFailed, "-addr 256.0.0.1:1"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), strings.Fields(test.args), &out, &errs)
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
