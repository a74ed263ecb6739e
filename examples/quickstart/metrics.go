package main

import (
	"fmt"
	"net"
	"net/http"
	"time"
)

// page is the HTTP server of -metrics; nil without.
type page struct {
	url    string
	server *http.Server
	done   chan struct{}
}

// serveMetrics serves /metrics at addr; it does nothing if that is empty.
func serveMetrics(addr string, handler http.Handler) (*page, error) {
	if addr == "" {
		return nil, nil //nolint:nilnil // no flag, no page
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("-metrics %s: %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	p := &page{
		url:    "http://" + l.Addr().String() + "/metrics",
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
