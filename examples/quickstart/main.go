// Command quickstart shows lockdog at work, in 8 seconds and without anything installed: a lock that is renewed, waited
// for, fails to be renewed, and is lost.
//
//	go run ./examples/quickstart
//
// story.go has what happens. telemetry.go prints what lockdog emits about it: spans, log lines and metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

func main() {
	addr := flag.String("metrics", "",
		"serve /metrics and /debug/locks at `ADDR`, such as localhost:9464, until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *addr, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "quickstart:", err)
		if interrupted {
			os.Exit(130) // as in shells
		}
		os.Exit(1)
	}
}

// run starts a Redis in this process and, if addr isn't empty, an HTTP server for the pages.
func run(ctx context.Context, addr string, out io.Writer) error {
	logging.Disable() // go-redis would log errors that lockdog's spans and log lines have too
	mini, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer mini.Close()
	mini.ClockTTL(true) // without it leases never run out
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()

	_, _ = fmt.Fprintln(out,
		"This is what lockdog tells of a lock: its spans, as they end, and its log. Attributes that say little are left out.")
	var pages *http.ServeMux
	if addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		pages = http.NewServeMux()
		go func() { _ = http.Serve(l, pages) }()
		_, _ = fmt.Fprintf(out,
			"Metrics are at http://%s/metrics, and all locks at http://%[1]s/debug/locks, until you press Ctrl-C.\n", l.Addr())
	}
	return play(ctx, out, rdb, mini.SetError, pages)
}

// play makes the services, and plays the story. If there are pages, it then holds a lock until ctx ends, so that they
// show it.
func play(
	ctx context.Context, out io.Writer, rdb redis.UniversalClient, refuse func(reply string), pages *http.ServeMux,
) (err error) {
	end := context.WithoutCancel(ctx) // for closing and sending the last spans after Ctrl-C
	providers, logger, err := startTelemetry(ctx, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, providers.Shutdown(end)) }()

	var clients []*lock.Client
	for _, service := range []string{"orders", "billing", "operator"} { // usually three processes
		c, err := lock.New(rdb, lock.WithClientID(service), lock.WithLease(leaseTime), lock.WithLogger(logger))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close(end) }()
		clients = append(clients, c)
	}
	if pages != nil {
		pages.Handle("/metrics", providers.Handler())
		pages.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{Clients: clients}))
	}

	s := story{
		out: out, logger: logger, orders: clients[0], billing: clients[1], operator: clients[2], refuse: refuse,
	}
	if err := s.play(ctx); err != nil {
		return err
	}
	if err := printCounters(out, providers.Registry); err != nil {
		return err
	}
	if pages == nil {
		s.title("Go on: -metrics localhost:9464 serves the metrics and a page of all locks, and with\n" +
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 the spans go to Jaeger, too.")
		return nil
	}
	return s.orders.Mutex("report:daily", lock.WithLease(lock.DefaultLease)).Do(ctx,
		func(ctx context.Context, _ *lock.Lease) error {
			<-ctx.Done()
			return nil
		})
}
