// Command quickstart shows lockdog at work, in 8 seconds and without anything installed: two services, one
// lock, and everything that can happen to it.
//
//	go run ./examples/quickstart
//
// The lines it prints are spans that lockdog made and OpenTelemetry's SDK exported, with a few notes between them: your
// tracing backend would show the same. -h lists the flags.
//
// story.go has the story, service.go what a program sets up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as in shells
)

// closeTimeout bounds the end. No lock is held by then, so only a dead collector uses it up.
const closeTimeout = 3 * time.Second

const usage = `quickstart shows lockdog at work, in 8 seconds: a lock acquired, renewed, waited for, in trouble, lost and
released. It needs nothing installed: the Redis it uses is embedded.

usage: quickstart [flags]

`

const environment = `
NO_COLOR=1 turns colours off, and so does a pipe. The OTEL_* variables apply; see package otelsetup.
Exit codes: 0 when the story is told, 2 for bad flags, 1 for other errors.
`

// flags are those of the command line.
type flags struct {
	redis         *redis.Options // nil: embedded
	otlp, metrics string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis would log lost connections to stderr; here they are part of the story

	fail := func(code int, err error) int {
		_, _ = fmt.Fprintln(stderr, "quickstart:", err)
		return code
	}
	f, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return fail(exitUsage, fmt.Errorf("%w\nquickstart -h lists the flags", err))
	}
	err = play(ctx, f, newPrinter(stdout))
	switch {
	case err == nil:
		return 0
	case errors.Is(err, otelsetup.ErrConfig):
		return fail(exitUsage, err)
	case ctx.Err() != nil:
		return fail(exitInterrupted, errors.New("interrupted"))
	default:
		return fail(exitFailed, err)
	}
}

// parse reads the command line; -h prints the usage.
func parse(args []string, stdout io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run prints errors
	set.Usage = func() {}
	set.Func("redis", "use the real server at `ADDR`: host:port, or a URL like redis://user:password@host:6379/0.\n"+
		"All keys start with \""+keyPrefix+"\"; small counters of tokens stay behind", func(s string) (err error) {
		f.redis, err = redisOptions(s)
		return err
	})
	set.Func("otlp", "send the traces to a collector or Jaeger at `ENDPOINT`: localhost:4317 (gRPC), http://localhost:4318", func(s string) error {
		if f.otlp = s; s == "" {
			return errors.New("it is empty")
		}
		return nil
	})
	set.Func("metrics", "serve /metrics and /debug/locks at `ADDR`, and stay until interrupted", func(s string) error {
		f.metrics = s
		if _, _, err := net.SplitHostPort(s); err != nil {
			return errors.New("want host:port, such as localhost:9464")
		}
		return nil
	})
	err = set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
		set.SetOutput(stdout)
		set.PrintDefaults()
		_, _ = fmt.Fprint(stdout, environment)
	case err == nil && set.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return f, err
}

// play tells the story, and cleans up.
func play(ctx context.Context, f flags, out *printer) (err error) {
	redis, err := startRedis(ctx, f.redis)
	if err != nil {
		return err
	}
	defer redis.close()
	s := &story{printer: out, redis: redis, seen: newRecord(), flags: f}
	defer func() {
		// Also after an interrupt: release what is held, and send the last spans.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, s.close(ctx))
	}()
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.tell(ctx); err != nil {
		return err
	}
	if err := out.counters(s.shared.Registry); err != nil {
		return err
	}
	s.next()
	if s.url != "" {
		return s.stay(ctx)
	}
	return nil
}
