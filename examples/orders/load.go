package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

const (
	loadOrders   = 50               // number of orders
	loadSkew     = 1.2              // exponent of the Zipf distribution: a few orders get most requests, and contend
	loadInFlight = 200              // maximum of concurrent requests; further ones are dropped
	loadTimeout  = 30 * time.Second // of one request
)

// load sends requests to services like this one. It is an open loop: arrivals don't wait for responses.
type load struct {
	rate    float64
	targets []string
	client  *http.Client
	random  *rand.Rand
	orders  *rand.Zipf
}

func newLoad(f flags, self string) *load {
	l := &load{rate: f.rate, targets: f.peers, random: newRand(f.seed, streamLoad)}
	if len(l.targets) == 0 {
		l.targets = []string{self}
	}
	l.orders = rand.NewZipf(l.random, loadSkew, 1, loadOrders-1)
	// Each request is a trace, which continues in the service that handles it.
	l.client = &http.Client{Timeout: loadTimeout, Transport: otelhttp.NewTransport(&http.Transport{
		MaxIdleConnsPerHost: loadInFlight, IdleConnTimeout: loadTimeout,
	})}
	return l
}

// run sends requests until ctx ends. That also cancels the requests in flight; run returns after the last of them.
func (l *load) run(ctx context.Context) {
	defer l.client.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	inFlight := make(chan struct{}, loadInFlight)
	for next := time.Now(); ; {
		next = next.Add(time.Duration(l.random.ExpFloat64() / l.rate * float64(time.Second)))
		if sleep(ctx, time.Until(next)) != nil {
			return
		}
		target := l.targets[l.random.IntN(len(l.targets))]
		url := fmt.Sprintf("%s/orders/%d", strings.TrimSuffix(target, "/"), 1+l.orders.Uint64())
		select {
		case inFlight <- struct{}{}:
			wg.Go(func() {
				defer func() { <-inFlight }()
				l.send(ctx, url)
			})
		default:
		}
	}
}

// send sends a request. It ignores the result: the target's metrics have it.
func (l *load) send(ctx context.Context, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body) // read to the end, so that the connection is reused
	_ = resp.Body.Close()
}
