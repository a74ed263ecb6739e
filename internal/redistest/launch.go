package redistest

import (
	"context"
	"errors"
)

// Launch starts servers for programs that aren't tests: one server or, with cluster, a Cluster of three primaries with
// Redis's default timeouts. They run until stop is called. Ctrl-C reaches only the program, so it can still read the
// servers' statistics.
func Launch(cluster bool) (addrs []string, stop func() error, err error) {
	configs := []config{newConfig(nil)}
	if cluster {
		cfg := newConfig([]Option{WithConfig("cluster-enabled", "yes"), WithConfig("cluster-config-file",
			"nodes.conf")})
		configs = []config{cfg, cfg, cfg}
	}
	for i := range configs {
		configs[i].apart = true
	}
	servers, err := launchAll(configs...)
	stop = func() error { return stopAll(servers) }
	if err == nil && cluster {
		c := &Cluster{Nodes: servers}
		err = c.form()
		for _, s := range servers {
			if err == nil {
				err = s.await("cluster ready",
					func(ctx context.Context, s *Server) error { return c.complete(ctx, s, 1) })
			}
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs, stop, nil
}
