package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// page is the HTTP server of -metrics; nil without.
type page struct {
	url    string // of /metrics
	locks  string // of /debug/locks
	server *http.Server
	done   chan struct{}
}

// serveMetrics serves /metrics and /debug/locks at addr; it does nothing if that is empty.
func serveMetrics(addr string, s *shop) (*page, error) {
	if addr == "" {
		return nil, nil //nolint:nilnil // no flag, no page
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("-metrics %s: %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.shared.Handler())
	mux.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{s.orders.locks, s.billing.locks}}))
	p := &page{
		url:    "http://" + l.Addr().String() + "/metrics",
		locks:  "http://" + l.Addr().String() + "/debug/locks",
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // until close
	}()
	return p, nil
}

func (p *page) close() {
	if p != nil {
		_ = p.server.Close()
		<-p.done
	}
}
