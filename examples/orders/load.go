package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

const (
	loadOrders   = 50               // how many orders there are
	loadSkew     = 1.2              // exponent of the Zipf distribution: a few orders get most requests, and contend
	loadFlight   = 200              // requests at one time; what comes on top is dropped and counted
	loadTimeout  = 30 * time.Second // of one request
	loadSummary  = 30 * time.Second
	loadMinPause = time.Millisecond // below it timers are no use: what is due is sent at once
)

// load sends requests to services like this one: an open loop, with arrivals that don't wait for answers.
type load struct {
	rate    float64
	targets []string
	log     *slog.Logger
	client  *http.Client
	random  *rand.Rand
	orders  *rand.Zipf

	changed, conflicts, failed, dropped atomic.Int64
}

func newLoad(f flags, self string, log *slog.Logger) *load {
	l := &load{rate: f.rate, targets: f.peers, log: log, random: newRand(f.seed, streamLoad)}
	if len(l.targets) == 0 {
		l.targets = []string{self}
	}
	l.orders = rand.NewZipf(l.random, loadSkew, 1, loadOrders-1)
	// Each request is a trace, which goes on in the service that answers.
	l.client = &http.Client{Timeout: loadTimeout, Transport: otelhttp.NewTransport(&http.Transport{
		MaxIdleConnsPerHost: loadFlight, IdleConnTimeout: loadTimeout,
	})}
	return l
}

// run sends until ctx ends, and returns when all is answered.
func (l *load) run(ctx context.Context) {
	defer l.client.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	flight := make(chan struct{}, loadFlight)
	summary := time.NewTicker(loadSummary)
	defer summary.Stop()

	next := time.Now()
	for ctx.Err() == nil {
		next = next.Add(time.Duration(l.random.ExpFloat64() / l.rate * float64(time.Second)))
		if pause := time.Until(next); pause > loadMinPause && sleep(ctx, pause) != nil {
			return
		}
		select {
		case <-summary.C:
			l.summarize(ctx)
		default:
		}
		url := fmt.Sprintf("%s/orders/%d", strings.TrimSuffix(l.targets[l.random.IntN(len(l.targets))], "/"), 1+l.orders.Uint64())
		select {
		case flight <- struct{}{}:
			wg.Go(func() {
				defer func() { <-flight }()
				l.send(ctx, url)
			})
		default:
			l.dropped.Add(1)
		}
	}
}

func (l *load) send(ctx context.Context, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		l.failed.Add(1)
		return
	}
	resp, err := l.client.Do(req)
	if err != nil {
		l.failed.Add(1)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body) // read to its end, so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusOK:
		l.changed.Add(1)
	case http.StatusConflict:
		l.conflicts.Add(1)
	default:
		l.failed.Add(1)
	}
}

func (l *load) summarize(ctx context.Context) {
	l.log.InfoContext(ctx, "load", "changed", l.changed.Load(), "conflicts", l.conflicts.Load(),
		"failed", l.failed.Load(), "dropped", l.dropped.Load())
}
