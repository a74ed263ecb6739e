package redistest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// startServers starts servers concurrently, and stops them when the test ends.
func startServers(tb testing.TB, configs ...config) []*Server {
	tb.Helper()
	servers, err := launchAll(configs...)
	stopLater(tb, servers)
	must(tb, err)
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

func stopLater(tb testing.TB, servers []*Server) {
	tb.Cleanup(func() {
		if err := stopAll(servers); err != nil {
			tb.Error(err)
		}
	})
}

func stopAll(servers []*Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

// Launch starts servers for programs that aren't tests: one server or, with cluster, a Cluster of three primaries with
// Redis's default timeouts. They run until stop is called or, on Linux, the program ends. Ctrl-C reaches only the
// program, so it can still read the servers' statistics.
func Launch(cluster bool) (addrs []string, stop func() error, err error) {
	var servers []*Server
	apart := func(c *config) { c.apart = true }
	if cluster {
		servers, err = launchCluster(0, apart, WithConfig("cluster-node-timeout", "15000"))
	} else {
		servers, err = launchAll(newConfig([]Option{apart}))
	}
	stop = func() error { return stopAll(servers) }
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return addrsOf(servers), stop, nil
}

func addrsOf(servers []*Server) []string {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// await polls each running server until try returns nil for it.
func await(servers []*Server, try func(*Server) error) error {
	for _, s := range servers {
		if !s.runs() {
			continue
		}
		if err := poll(func() error { return try(s) }); err != nil {
			return err
		}
	}
	return nil
}

// awaitDo sends a command to each running server until it succeeds.
func awaitDo(servers []*Server, command ...any) error {
	return await(servers, func(s *Server) error { return s.do(command...).Err() })
}

// awaitReply sends a command to each running server until expect accepts the reply.
func awaitReply(servers []*Server, want map[string]int, command ...any) error {
	return await(servers, func(s *Server) error { return s.expect(want, command...) })
}

// awaitPrimary waits until each running server sees a primary other than old, and returns what the last one sees. Each
// time a server sees old, the function still is called.
func awaitPrimary(
	tb testing.TB, servers []*Server, old *Server, seenBy func(*Server) (*Server, error), still func() error,
) *Server {
	tb.Helper()
	var primary *Server
	must(tb, await(servers, func(s *Server) (err error) {
		if primary, err = seenBy(s); err == nil && primary == old {
			err = errors.Join(fmt.Errorf("redistest: server %d: the primary is still %d", s.port, old.port), still())
		}
		return err
	}))
	if primary == nil {
		tb.Fatal("redistest: none of the servers runs that know the primary")
	}
	return primary
}

// orderAgain is the time after which a failover that didn't happen is ordered again: on a busy machine servers may give
// one up.
const orderAgain = 10 * time.Second

// ordering returns a function that calls order, unless the last successful call was less than orderAgain ago.
func ordering(order func() error) func() error {
	var ordered time.Time
	return func() error {
		if time.Since(ordered) < orderAgain {
			return nil
		}
		err := order()
		if err == nil {
			ordered = time.Now()
		}
		return err
	}
}

func justWait() error { return nil }

// byAddr returns the server that listens on addr.
func byAddr(servers []*Server, addr string) (*Server, error) {
	for _, s := range servers {
		if s.Addr() == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: no server of this test listens on %s", addr)
}
