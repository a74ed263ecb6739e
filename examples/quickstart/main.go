// Command quickstart shows lockdog at work, in 8 seconds and without anything installed: two services, one
// lock, and everything that can become of it.
//
//	go run ./examples/quickstart
//
// The lines it prints are spans that lockdog made and OpenTelemetry's SDK handed out, with few notes between: what you
// read here is what your tracing backend would show. -h lists the flags.
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

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it
)

const usage = `quickstart shows lockdog at work, in 8 seconds: a lock taken, kept alive, waited for, in trouble, lost and
released. It needs nothing installed: the Redis it talks to is embedded.

usage: quickstart [flags]

  -redis ADDR      use a real server: host:port, or a URL like redis://user:password@host:6379/0.
                   All keys start with "quickstart:"; small counters of tokens stay behind.
  -otlp ENDPOINT   send the traces to a collector or Jaeger: localhost:4317 (gRPC), http://localhost:4318
  -metrics ADDR    serve /metrics and /debug/locks at host:port, and stay until interrupted
  -h               print this

NO_COLOR=1 takes the colour out, and so does a pipe. The OTEL_* variables apply; see package otelsetup.
It exits 0 when the story was told, 2 for bad flags, 1 for what went wrong otherwise.
`

// flags are what the command line can say.
type flags struct {
	redis, otlp, metrics string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program, up to its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	// go-redis logs lost connections straight to stderr. Here they are part of the story.
	logging.Disable()

	f, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return 0
	case err != nil:
		return fail(stderr, exitUsage, fmt.Errorf("%w\nquickstart -h lists the flags", err))
	}
	err = play(ctx, f, newPrinter(stdout))
	switch {
	case err == nil:
		return 0
	case errors.Is(err, otelsetup.ErrConfig):
		return fail(stderr, exitUsage, err)
	case ctx.Err() != nil:
		return fail(stderr, exitInterrupted, errors.New("interrupted"))
	default:
		return fail(stderr, exitFailed, err)
	}
}

func fail(stderr io.Writer, code int, err error) int {
	_, _ = fmt.Fprintln(stderr, "quickstart:", err)
	return code
}

// parse reads the command line, and finds what can't be before anything is started.
func parse(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run says what is wrong
	set.StringVar(&f.redis, "redis", "", "")
	set.StringVar(&f.otlp, "otlp", "", "")
	set.StringVar(&f.metrics, "metrics", "", "")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	var err error
	set.Visit(func(given *flag.Flag) {
		if given.Value.String() == "" && err == nil {
			err = fmt.Errorf("-%s is empty", given.Name)
		}
	})
	if err != nil {
		return f, err
	}
	if f.redis != "" {
		if _, err := redisOptions(f.redis); err != nil {
			return f, fmt.Errorf("-redis %s: %w", f.redis, err)
		}
	}
	if f.metrics != "" {
		if _, _, err := net.SplitHostPort(f.metrics); err != nil {
			return f, fmt.Errorf("-metrics %s: want host:port, such as localhost:9464", f.metrics)
		}
	}
	return f, nil
}

// play tells the story, and cleans up whatever came of it.
func play(ctx context.Context, f flags, out *printer) (err error) {
	redis, err := startRedis(ctx, f.redis)
	if err != nil {
		return err
	}
	defer redis.close()
	shop, err := openShop(ctx, f, redis, out)
	if err != nil {
		return err
	}
	defer func() {
		// Also after an interrupt: what is held is released, and what is recorded sent.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, shop.close(ctx))
	}()
	page, err := serveMetrics(f.metrics, shop)
	if err != nil {
		return err
	}
	defer page.close()

	s := &story{shop: shop, redis: redis, out: out}
	if err := s.tell(ctx); err != nil {
		return err
	}
	counters, err := readCounters(shop.shared.Registry)
	if err != nil {
		return err
	}
	out.counters(counters)
	s.next(f, page)
	if page != nil {
		return s.stay(ctx)
	}
	return nil
}

// closeTimeout is how long the end may take. Nothing is held by then, so only a dead collector uses it up.
const closeTimeout = 3 * time.Second
