// Command deadlock runs three services that take five locks in an order that makes them wait for each other, two
// seconds after their start. It shows where lockdog reports that: in the log, in lockdog_deadlocks_total at /metrics,
// at /debug/locks, in Jaeger, and in `lockdog graph`.
//
//	go run ./examples/deadlock -redis localhost:6379 -otlp localhost:4317
//	go run ./examples/deadlock -redis localhost:6379 -break
//
// orders holds customer:9 and waits for stock:7, warehouse holds stock:7 and waits for invoice:3, and billing holds
// invoice:3 and waits for customer:9. The other two locks aren't part of the deadlock. With -break one of the three
// gives up, so that all of them get done. The three run in one process or, with -service, in one process each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// plans has the locks that each service takes, each while holding the previous ones. Each service takes its last lock
// after a pause, when all services hold their other locks. Services in the same process wait until that is so; for
// services in other processes the pause is long enough.
var plans = map[string][]string{
	"orders":    {"order:42", "customer:9", "stock:7"},
	"warehouse": {"shelf:2", "stock:7", "invoice:3"},
	"billing":   {"invoice:3", "customer:9"},
}

// program has the flags, and what all services use.
type program struct {
	redis, otlp, addr, service string
	wait, pause                time.Duration
	breaks                     bool

	log *slog.Logger
	rdb *redis.Client

	ready sync.WaitGroup // counts the services of this process that don't yet hold all locks but the last
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "deadlock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, logs io.Writer) (err error) {
	var p program
	set := flag.NewFlagSet("deadlock", flag.ContinueOnError)
	set.SetOutput(logs)
	set.StringVar(&p.redis, "redis", "localhost:6379", "the Redis at `ADDR`")
	set.StringVar(&p.otlp, "otlp", "", "send the traces to `ENDPOINT`: localhost:4317 (gRPC), http://localhost:4318")
	set.StringVar(&p.addr, "addr", "",
		"serve /metrics and /debug/locks at `ADDR`, also when all is done, until it is interrupted; none by default")
	set.StringVar(&p.service, "service", "",
		"be only the service `NAME`: orders, warehouse or billing; all three by default")
	set.DurationVar(&p.wait, "wait", 30*time.Second, "how long a service waits for a lock")
	set.DurationVar(&p.pause, "pause", 2*time.Second, "the time until each takes its last lock")
	set.BoolVar(&p.breaks, "break", false, "end the deadlock: lock.WithDeadlockBreaking")
	if err := set.Parse(args); err != nil {
		return err
	}
	services := slices.Sorted(maps.Keys(plans))
	name := "deadlock"
	if p.service != "" {
		if plans[p.service] == nil {
			return fmt.Errorf("-service %q: want one of %v", p.service, services)
		}
		services, name = []string{p.service}, p.service
	}

	providers, err := otelsetup.Start(ctx, otelsetup.Config{ServiceName: name, Endpoint: p.otlp, LogOutput: logs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, providers.Shutdown(context.WithoutCancel(ctx))) }()
	p.log = providers.Logger
	p.rdb = redis.NewClient(&redis.Options{Addr: p.redis})
	defer func() { err = errors.Join(err, p.rdb.Close()) }()

	var clients []*lock.Client
	for _, service := range services {
		c, err := lock.New(p.rdb, lock.WithClientID(service), lock.WithLogger(p.log))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
		clients = append(clients, c)
	}
	stop, err := p.serve(providers, clients)
	if err != nil {
		return err
	}
	defer stop()

	errs := make([]error, len(services))
	p.ready.Add(len(services))
	var all sync.WaitGroup
	for i, service := range services {
		all.Go(func() { errs[i] = p.request(ctx, clients[i], service) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		p.log.Error("not done", "error", err)
	}
	if p.addr != "" {
		<-ctx.Done()
		return nil
	}
	return errors.Join(errs...)
}

// request does the work of a service. It repeats the work if lockdog chose the service to end a deadlock.
func (p *program) request(ctx context.Context, c *lock.Client, service string) error {
	ready := sync.OnceFunc(p.ready.Done) // only for the first try
	defer ready()
	for {
		err := p.once(ctx, c, service, ready)
		var chosen *lock.DeadlockError
		if !errors.As(err, &chosen) {
			return err
		}
		// Its locks are released by now.
		p.log.Warn("gave up to end a deadlock; tries again", "service", service)
	}
}

func (p *program) once(ctx context.Context, c *lock.Client, service string, ready func()) error {
	ctx, span := otel.Tracer("deadlock").Start(ctx, service)
	defer span.End()
	ctx = lock.TrackWaitTime(ctx)
	plan, began := plans[service], time.Now()
	opts := []lock.LockOption{lock.WithWait(p.wait)}
	if p.breaks {
		opts = append(opts, lock.WithDeadlockBreaking())
	}
	// take takes the i-th lock and those after it, each with the ctx of the previous one. So lockdog knows which locks
	// a waiter holds.
	var take func(ctx context.Context, i int) error
	take = func(ctx context.Context, i int) error {
		if i == len(plan) {
			p.log.InfoContext(ctx, "done", "service", service, "waited", lock.WaitTime(ctx).Seconds())
			return nil
		}
		if i == len(plan)-1 {
			ready()
			p.ready.Wait()
			time.Sleep(time.Until(began.Add(p.pause)))
		}
		return c.Mutex(plan[i], opts...).Do(ctx,
			func(ctx context.Context, _ *lock.Lease) error { return take(ctx, i+1) })
	}
	return take(ctx, 0)
}

// serve serves the metrics and the debug page of the clients.
func (p *program) serve(providers *otelsetup.Providers, clients []*lock.Client) (stop func(), err error) {
	if p.addr == "" {
		return func() {}, nil
	}
	reader, err := fleet.New(p.rdb, "")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", providers.Handler())
	mux.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{Clients: clients, Fleet: reader}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}
