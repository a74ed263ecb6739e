// Command orders is an example of a service with lockdog: HTTP requests that change an order under its lock,
// workers that hold a lock for a long time, and OpenTelemetry in all parts.
//
//	go run ./examples/orders -redis localhost:6379 -otlp localhost:4317
//	go run ./examples/orders -redis localhost:6379 -otlp localhost:4317 -addr 127.0.0.1:8081
//
// The two use the same orders and reports, and each sends itself some load. -h lists the flags.
//
// service.go shows what a program has to set up; handler.go and worker.go show how to use locks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

const usage = `orders is an example of a service that uses lockdog. Start it twice, with the same Redis, to see the two contend.

usage: orders [flags]

`

const exitCodes = `
Exit codes: 0 when it was interrupted and has released its locks, 2 for bad flags, 1 for other errors.
`

// flags has the values of the command-line flags.
type flags struct {
	addr, otlp, service, traceURL, agent string

	redis                   *redis.Options
	lease, work, wait, hold time.Duration
	workers                 int
	rate, chaos             float64
	peers                   []string
	seed                    uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program. It returns the exit code: once ctx has ended, or earlier after -h or an error.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(code int, err error) int {
		_, _ = fmt.Fprintln(stderr, "orders:", err)
		return code
	}
	f, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return fail(exitUsage, fmt.Errorf("%w\norders -h lists the flags", err))
	}
	s, err := start(ctx, f, stderr)
	if err == nil {
		err = s.run(ctx)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, otelsetup.ErrConfig), errors.Is(err, lock.ErrInvalid):
		return fail(exitUsage, err)
	default:
		return fail(exitFailed, err)
	}
}

// parse parses the command line. With -h it prints the usage.
func parse(args []string, stdout io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("orders", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run prints errors
	set.Usage = func() {}
	set.StringVar(&f.addr, "addr", "127.0.0.1:8080",
		"serve HTTP at `ADDR`: POST /orders/{id}, /metrics, /debug/locks, /healthz")
	server := set.String("redis", "localhost:6379",
		"the Redis at `ADDR`: host:port, or a URL like redis://user:password@host:6379/0")
	set.StringVar(&f.otlp, "otlp", "",
		"send the traces to a collector or Jaeger at `ENDPOINT`: localhost:4317 (gRPC), http://localhost:4318.\n"+
			"Default: as the OTEL_* variables say, and nowhere if they say nothing")
	set.StringVar(&f.service, "service", "orders",
		"the service.name `NAME` of all telemetry; scrape the metrics under a job of the same name")
	set.StringVar(&f.traceURL, "trace-url", "",
		"`URL` of a trace, which /debug/locks links to, like http://localhost:16686/trace/{trace_id}")
	set.StringVar(&f.agent, "agent", "", "`PATH` of the socket of a lockdog agent, which renews the leases")
	set.DurationVar(&f.lease, "lease", lock.DefaultLease, "the lease of all locks; it is renewed every third of it")
	set.DurationVar(&f.work, "work", 100*time.Millisecond, "how long a request works under its lock on average")
	set.DurationVar(&f.wait, "wait", 2*time.Second, "how long a request waits for the lock of its order")
	set.IntVar(&f.workers, "workers", 2, "`N` workers that write reports, each under its own lock")
	set.DurationVar(&f.hold, "hold", time.Minute, "how long a worker holds its lock")
	set.Float64Var(&f.rate, "load", 5, "requests per second, `RATE`, that the service sends to itself; 0 for none")
	peers := set.String("peers", "", "send them to these base `URLS` instead, separated by commas")
	set.Float64Var(&f.chaos, "chaos", 0, "make this `SHARE` of the renewal calls fail, such as 0.05")
	set.Uint64Var(&f.seed, "seed", 0,
		"the seed `N` of all that is random: arrivals, orders, chaos; 0 for a different one each time")
	err = set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
		set.SetOutput(stdout)
		set.PrintDefaults()
		_, _ = fmt.Fprint(stdout, exitCodes)
		return f, err
	case err != nil:
		return f, err
	case set.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if *peers != "" {
		f.peers = strings.Split(*peers, ",")
	}
	if f.redis, err = redisOptions(*server); err != nil {
		return f, fmt.Errorf("-redis %q: %w", *server, err)
	}
	return f, f.check()
}

func (f *flags) check() error {
	if _, _, err := net.SplitHostPort(f.addr); err != nil {
		return fmt.Errorf("-addr %q: want host:port", f.addr)
	}
	switch {
	case f.work <= 0, f.hold <= 0, f.wait < 0:
		return errors.New("-work and -hold must be positive, -wait not negative")
	case f.workers < 0 || f.workers > 1000:
		return fmt.Errorf("-workers %d: want 0 to 1000", f.workers)
	case !(f.rate >= 0 && f.rate <= 10_000): // rejects NaN too
		return fmt.Errorf("-load %v: want 0 to 10000 requests per second", f.rate)
	case !(f.chaos >= 0 && f.chaos <= 1):
		return fmt.Errorf("-chaos %v: want a share from 0 to 1", f.chaos)
	case f.traceURL != "" && (!isWebURL(f.traceURL) || !strings.Contains(f.traceURL, "{trace_id}")):
		return fmt.Errorf("-trace-url %q: want a URL such as http://localhost:16686/trace/{trace_id}", f.traceURL)
	}
	for _, peer := range f.peers {
		if !isWebURL(peer) {
			return fmt.Errorf("-peers %q: want base URLs such as http://localhost:8081", peer)
		}
	}
	return nil
}

func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// redisOptions parses the value of -redis.
func redisOptions(addr string) (*redis.Options, error) {
	if strings.Contains(addr, "://") {
		return redis.ParseURL(addr)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, errors.New("want host:port or a redis:// URL")
	}
	return &redis.Options{Addr: addr}, nil
}
