package redistest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// shapeLimit bounds how long a shape may take to come up or to fail over. On an
// idle two-core machine the slowest, a Cluster of six, takes three seconds.
const shapeLimit = 60 * time.Second

// startServers starts servers side by side and stops them when the test ends.
func startServers(tb testing.TB, configs ...config) []*Server {
	tb.Helper()
	servers := make([]*Server, len(configs))
	errs := make([]error, len(configs))
	var wg sync.WaitGroup
	for i, cfg := range configs {
		wg.Go(func() { servers[i], errs[i] = startServer(cfg) })
	}
	wg.Wait()
	tb.Cleanup(func() {
		for _, s := range servers {
			if s == nil {
				continue
			}
			if err := s.stop(); err != nil {
				tb.Error(err)
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	return servers
}

// await polls every one of the servers that runs until try is content with it.
func await(tb testing.TB, what string, servers []*Server, try func(context.Context, *Server) error) {
	tb.Helper()
	for _, s := range servers {
		if s.process().Ended() {
			continue
		}
		err := poll(shapeLimit, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, adminLimit)
			defer cancel()
			return try(ctx, s)
		})
		if err != nil {
			tb.Fatalf("redistest: %s, server %d: %v", what, s.port, err)
		}
	}
}

// byPort finds the server that listens at port.
func byPort(servers []*Server, port int) (*Server, error) {
	for _, s := range servers {
		if s.port == port {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: no server of this test listens on port %d", port)
}

func isRole(ctx context.Context, s *Server, want string) error {
	info, err := s.info(ctx, "replication")
	if err != nil {
		return err
	}
	if role := info["role"]; role != want {
		return fmt.Errorf("its role is %s, not %s", role, want)
	}
	return nil
}
