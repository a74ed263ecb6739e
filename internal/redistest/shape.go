package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// startServers starts servers concurrently, and stops them when the test ends.
func startServers(tb testing.TB, configs ...config) []*Server {
	tb.Helper()
	servers, err := launchAll(configs...)
	tb.Cleanup(func() {
		if err := stopAll(servers); err != nil {
			tb.Error(err)
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	return servers
}

// launchAll starts servers concurrently. If some don't start, it returns the others with the error.
func launchAll(configs ...config) ([]*Server, error) {
	servers := make([]*Server, len(configs))
	errs := make([]error, len(configs))
	var wg sync.WaitGroup
	for i, cfg := range configs {
		wg.Go(func() { servers[i], errs[i] = startServer(cfg) })
	}
	wg.Wait()
	return slices.DeleteFunc(servers, func(s *Server) bool { return s == nil }), errors.Join(errs...)
}

func stopAll(servers []*Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

// await polls each running server until try returns nil for it.
func await(tb testing.TB, what string, servers []*Server, try func(context.Context, *Server) error) {
	tb.Helper()
	for _, s := range servers {
		if s.process().Ended() {
			continue
		}
		if err := s.await(what, try); err != nil {
			tb.Fatal(err)
		}
	}
}

func (s *Server) await(what string, try func(context.Context, *Server) error) error {
	err := poll(func(ctx context.Context) error { return try(ctx, s) })
	if err != nil {
		return fmt.Errorf("redistest: %s, server %d: %w", what, s.port, err)
	}
	return nil
}

// byPort returns the server that listens on port.
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
