// Package server starts the Redis of the load test: one server, or a cluster of three, on free loopback ports. Nothing is kept on
// disk.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/proc"
)

// Ports, and those of the cluster bus 10,000 above them, lie below what systems take for outgoing connections.
const (
	portMin   = 20_000
	portMax   = 22_700
	busOffset = 10_000
	portTries = 50

	startLimit = 15 * time.Second
	pollEvery  = 10 * time.Millisecond
)

// Nodes of a cluster, and its slots.
const (
	clusterNodes = 3
	clusterSlots = 16384
)

// Redis is one server or a cluster.
type Redis struct {
	dir   string
	nodes []*node
}

type node struct {
	*proc.Process
	addr string
	rdb  *redis.Client
}

// ErrMissing means that there is no redis-server to run.
var ErrMissing = errors.New("redis-server is not installed")

// Start starts it and waits until it answers. LOCKDOG_REDIS_SERVER names another binary than redis-server.
func Start(ctx context.Context, cluster bool) (_ *Redis, err error) {
	name := os.Getenv("LOCKDOG_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	bin, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%w: run `apt-get install redis-server` (7.0 or newer), set LOCKDOG_REDIS_SERVER to one, "+
			"or use one that runs with -redis: %w", ErrMissing, err)
	}
	dir, err := os.MkdirTemp("", "lockdog-loadtest-")
	if err != nil {
		return nil, err
	}
	r := &Redis{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if !cluster {
		return r, r.add(ctx, bin, cluster)
	}
	for range clusterNodes {
		if err := r.add(ctx, bin, cluster); err != nil {
			return nil, err
		}
	}
	return r, r.form(ctx)
}

// add starts one server, on another port when this one is in use by then.
func (r *Redis) add(ctx context.Context, bin string, cluster bool) error {
	for range portTries {
		port := portMin + rand.IntN(portMax-portMin)
		if !free(port) || cluster && !free(port+busOffset) {
			continue
		}
		log := filepath.Join(r.dir, strconv.Itoa(port)+".log")
		args := []string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
			"--dir", r.dir, "--logfile", log, "--daemonize", "no",
		}
		if cluster {
			args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", strconv.Itoa(port)+".conf")
		}
		p, err := proc.StartApart(exec.Command(bin, args...))
		if err != nil {
			return err
		}
		n := &node{p, loopback(port), redis.NewClient(&redis.Options{Addr: loopback(port), PoolSize: 1, MaxRetries: -1, DialerRetries: 1})}
		if err = poll(ctx, func() error { return n.greet(ctx) }); err == nil {
			r.nodes = append(r.nodes, n)
			return nil
		}
		if err := n.stop(); err != nil {
			return err
		}
		text, _ := os.ReadFile(log) // the error says enough without
		if !bytes.Contains(text, []byte("Address already in use")) {
			return fmt.Errorf("redis-server does not start: %w\n%s", err, text[max(0, len(text)-1000):])
		}
	}
	return fmt.Errorf("no free port from %d to %d in %d tries", portMin, portMax, portTries)
}

var errEnded = errors.New("it ended")

// greet succeeds when the server that answers is this process.
func (n *node) greet(ctx context.Context) error {
	if n.Ended() {
		return errEnded
	}
	text, err := n.rdb.Info(ctx, "server").Result()
	if err == nil && !strings.Contains(text, fmt.Sprintf("process_id:%d\r", n.PID())) {
		return fmt.Errorf("another server is at %s", n.addr)
	}
	return err
}

func (n *node) stop() error { return errors.Join(n.rdb.Close(), n.Kill()) }

// form assigns the slots, introduces the nodes and waits until all agree.
func (r *Redis) form(ctx context.Context) error {
	var errs []error
	for i, n := range r.nodes {
		errs = append(errs, n.rdb.ClusterAddSlotsRange(ctx, i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes-1).Err(),
			n.rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		for _, other := range r.nodes[:i] {
			host, port, _ := net.SplitHostPort(other.addr)
			errs = append(errs, n.rdb.ClusterMeet(ctx, host, port).Err())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("form the cluster: %w", err)
	}
	return poll(ctx, func() error {
		for _, n := range r.nodes {
			info, err := n.rdb.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			for _, want := range []string{"cluster_state:ok", fmt.Sprint("cluster_known_nodes:", clusterNodes), fmt.Sprint("cluster_size:", clusterNodes)} {
				if !strings.Contains(info, want) {
					return fmt.Errorf("the cluster is not ready: %s is not %s", n.addr, want)
				}
			}
		}
		return nil
	})
}

// Addrs are the addresses of the servers.
func (r *Redis) Addrs() []string {
	var addrs []string
	for _, n := range r.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// Stop ends them. What they held is gone.
func (r *Redis) Stop() error {
	var errs []error
	for _, n := range r.nodes {
		errs = append(errs, n.stop())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// poll tries until it works, ctx ends, or the server has ended.
func poll(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

func free(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
