package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// maxWork is the maximum of ?work= in a request.
const maxWork = 5 * time.Minute

// routes returns all handlers. Only the API is traced: otherwise each scrape would be a span.
func (s *service) routes() http.Handler {
	a := &api{
		store: &store{s.rdb, s.flags.service + ":data:"}, locks: s.locks, log: s.log,
		work: s.flags.work, wait: s.flags.wait,
	}
	orders := http.NewServeMux()
	orders.HandleFunc("POST /orders/{id}", a.post)

	mux := http.NewServeMux()
	mux.Handle("/orders/", otelhttp.NewHandler(orders, "orders")) // names spans by method and route
	mux.Handle("GET /metrics", s.telemetry.Handler())
	page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{s.locks}, TraceURL: s.flags.traceURL})
	mux.Handle("GET /debug/locks", page)
	mux.Handle("GET /debug/locks/profile", page)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		// Healthy even if Redis is down: a restart of this process would lose its locks, and not help Redis.
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

// api changes orders.
type api struct {
	store      *store
	locks      *lock.Client
	log        *slog.Logger
	work, wait time.Duration
}

// post changes one order. ?work=3s sets how long that takes.
func (a *api) post(w http.ResponseWriter, r *http.Request) {
	work := time.Duration(rand.ExpFloat64() * float64(a.work))
	if asked := r.URL.Query().Get("work"); asked != "" {
		var err error
		if work, err = time.ParseDuration(asked); err != nil || work < 0 || work > maxWork {
			http.Error(w, fmt.Sprintf("work: want a duration from 0 to %v, such as 3s", maxWork), http.StatusBadRequest)
			return
		}
	}
	o, err := a.change(r.Context(), r.PathValue("id"), work)
	switch {
	case err == nil, errors.Is(err, lock.ErrUnconfirmed): // in both cases the order is changed
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o) // the client may be gone
	case r.Context().Err() != nil:
		// The client has gone, which has ended the wait or the lease.
	case errors.Is(err, lock.ErrHeld):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "another request is changing this order", http.StatusConflict)
	case errors.Is(err, lock.ErrInvalid):
		http.Error(w, "bad order id", http.StatusBadRequest)
	default:
		a.log.ErrorContext(r.Context(), "order not changed", "order", r.PathValue("id"), "error", err)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	}
}

// change reads an order, works on it and writes it, under its lock.
func (a *api) change(ctx context.Context, id string, work time.Duration) (order, error) {
	m := a.locks.Mutex("orders:"+id, lock.WithWait(a.wait))
	return lock.Do(ctx, m, func(ctx context.Context, l *lock.Lease) (order, error) {
		o, err := a.store.get(ctx, id)
		if err != nil {
			return o, err
		}
		if err := sleep(ctx, work); err != nil { // stands for the work; it stops if the lock is lost
			return o, err
		}
		o.Version++
		o.Token = l.Token()
		return o, a.store.put(ctx, o)
	})
}

// sleep sleeps for d. If ctx ends earlier, it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
