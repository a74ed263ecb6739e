// Command orders is a service as you would write it with lockdog: HTTP requests that change an order under its lock,
// workers that hold a lock for long, and OpenTelemetry all the way through.
//
//	go run ./examples/orders -redis localhost:6379 -otlp localhost:4317
//	go run ./examples/orders -redis localhost:6379 -otlp localhost:4317 -addr 127.0.0.1:8081
//
// The two contend for the same orders and reports, and send each themselves some load. -h lists the flags.
//
// Read service.go for what a program has to set up, handler.go and worker.go for locks in use.
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

  -addr ADDR       serve HTTP at host:port (127.0.0.1:8080): POST /orders/{id}, /metrics, /debug/locks, /healthz
  -redis ADDR      the Redis: host:port (localhost:6379), or a URL like redis://user:password@host:6379/0
  -otlp ENDPOINT   send the traces to a collector or Jaeger: localhost:4317 (gRPC), http://localhost:4318.
                   Default: as the OTEL_* variables say, and nowhere if they say nothing
  -service NAME    the service.name of all telemetry (orders); scrape the metrics under a job of the same name
  -trace-url URL   where /debug/locks links a trace to, like http://localhost:16686/trace/{trace_id}
  -lease D         the lease of all locks (30s); it is renewed every third of it
  -work D          how long a request works under its lock in the mean (100ms)
  -wait D          how long a request waits for the lock of its order (2s)
  -workers N       workers that write reports, each under a lock of its own (2)
  -hold D          how long a worker holds its lock (1m0s)
  -load RATE       requests per second that the service sends itself, 0 for none (5)
  -peers URLS      where to send them instead: base URLs, separated by commas
  -chaos SHARE     let this share of the calls that renew fail, such as 0.05 (0)
  -seed N          of all that is random: arrivals, orders, chaos; 0 for another one each time (0)
  -h               print this

It exits 0 when it was interrupted and has let go of its locks, 2 for bad flags, 1 for what went wrong otherwise.
`

// flags are what the command line can say.
type flags struct {
	addr, redis, otlp, service, traceURL string
	lease, work, wait, hold              time.Duration
	workers                              int
	rate, chaos                          float64
	peers                                []string
	seed                                 uint64

	redisOptions *redis.Options
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program, up to its exit code. It ends when ctx does.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return 0
	case err != nil:
		return fail(stderr, exitUsage, fmt.Errorf("%w\norders -h lists the flags", err))
	}
	s, err := start(ctx, f, stderr)
	switch {
	case errors.Is(err, otelsetup.ErrConfig), errors.Is(err, lock.ErrInvalid):
		return fail(stderr, exitUsage, err)
	case err != nil:
		return fail(stderr, exitFailed, err)
	}
	if err := s.run(ctx); err != nil {
		return fail(stderr, exitFailed, err)
	}
	return 0
}

func fail(stderr io.Writer, code int, err error) int {
	_, _ = fmt.Fprintln(stderr, "orders:", err)
	return code
}

// parse reads the command line, and finds what can't be before anything is started.
func parse(args []string) (flags, error) {
	var f flags
	var peers string
	set := flag.NewFlagSet("orders", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run says what is wrong
	set.StringVar(&f.addr, "addr", "127.0.0.1:8080", "")
	set.StringVar(&f.redis, "redis", "localhost:6379", "")
	set.StringVar(&f.otlp, "otlp", "", "")
	set.StringVar(&f.service, "service", "orders", "")
	set.StringVar(&f.traceURL, "trace-url", "", "")
	set.DurationVar(&f.lease, "lease", lock.DefaultLease, "")
	set.DurationVar(&f.work, "work", 100*time.Millisecond, "")
	set.DurationVar(&f.wait, "wait", 2*time.Second, "")
	set.DurationVar(&f.hold, "hold", time.Minute, "")
	set.IntVar(&f.workers, "workers", 2, "")
	set.Float64Var(&f.rate, "load", 5, "")
	set.StringVar(&peers, "peers", "", "")
	set.Float64Var(&f.chaos, "chaos", 0, "")
	set.Uint64Var(&f.seed, "seed", 0, "")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if peers != "" {
		f.peers = strings.Split(peers, ",")
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
	case !(f.rate >= 0 && f.rate <= 10_000): // also what is not a number
		return fmt.Errorf("-load %v: want 0 to 10000 requests per second", f.rate)
	case !(f.chaos >= 0 && f.chaos <= 1):
		return fmt.Errorf("-chaos %v: want a share from 0 to 1", f.chaos)
	}
	if f.traceURL != "" && (!isWebURL(f.traceURL) || !strings.Contains(f.traceURL, "{trace_id}")) {
		return fmt.Errorf("-trace-url %q: want a URL such as http://localhost:16686/trace/{trace_id}", f.traceURL)
	}
	for _, peer := range f.peers {
		if !isWebURL(peer) {
			return fmt.Errorf("-peers %q: want base URLs such as http://localhost:8081", peer)
		}
	}
	var err error
	if f.redisOptions, err = redisOptions(f.redis); err != nil {
		return fmt.Errorf("-redis %q: %w", f.redis, err)
	}
	return nil
}

func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// redisOptions reads what -redis can be.
func redisOptions(addr string) (*redis.Options, error) {
	if strings.Contains(addr, "://") {
		return redis.ParseURL(addr)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, errors.New("want host:port or a redis:// URL")
	}
	return &redis.Options{Addr: addr}, nil
}
