// Command fleet is one process of the soak test's fleets: it uses every kind of lock, against other processes and
// within itself, until SIGTERM. Its metrics show what happens to its locks. The program itself fails only if it can't
// start, or can't close everything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// closeTimeout bounds the closing of everything, after the locks are released.
const closeTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run serves metrics and uses locks until ctx ends.
func run(ctx context.Context) (err error) {
	addr := flag.String("addr", "", "host:port of /metrics")
	service := flag.String("service", "", "service.name, which the keys begin with, too")
	id := flag.String("id", "", "what tells this process from others of the service, and stays when it is started anew")
	servers := flag.String("redis", "", "host:port of the Redis of all locks but Quorums, and of each node of those, separated by commas")
	lease := flag.Duration("lease", 0, "of all locks")
	flag.Parse()

	providers, err := otelsetup.Start(ctx, otelsetup.Config{ServiceName: *service})
	if err != nil {
		return err
	}
	var closers []func(context.Context) error
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i](ctx))
		}
	}()
	closers = append(closers, providers.Shutdown)

	var clients []*lock.Client
	for _, server := range strings.Split(*servers, ",") {
		rdb := redis.NewClient(&redis.Options{Addr: server})
		closers = append(closers, func(context.Context) error { return rdb.Close() })
		c, err := lock.New(rdb, lock.WithKeyPrefix(*service+":"), lock.WithLease(*lease))
		if err != nil {
			return err
		}
		closers = append(closers, c.Close)
		clients = append(clients, c)
	}
	quorum, err := lock.NewQuorum(clients[1:]...)
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", providers.Handler())
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	closers = append(closers, func(context.Context) error { return server.Close() })
	go func() { _ = server.Serve(listener) }()

	(&user{id: *id, lease: *lease, locks: clients[0], quorum: quorum}).run(ctx)
	return nil
}
