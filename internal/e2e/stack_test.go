//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
)

// The two services, by the service.name of their telemetry, which is their job in Prometheus. They differ in their leases: orders has
// short ones, so that a request lives to see renewals; patient has the default, as most users will.
const (
	orders  = "orders"
	patient = "patient"

	shortLease = 3 * time.Second
	reportHold = 8 * time.Second // of the workers of orders
	workers    = 3               // with a lock each, in each service
)

// leases of the services.
var leases = map[string]time.Duration{orders: shortLease, patient: lock.DefaultLease}

// stack is everything that runs.
type stack struct {
	cable      *redistest.Proxy // between the services and Redis
	prometheus *prometheus
	jaeger     *jaeger
	// a and b are instances of orders, idle is the one of patient: that has workers only.
	a, b, idle *instance
}

// instance is one process of examples/orders.
type instance struct {
	*program
	url string
}

func startStack(t *testing.T) *stack {
	t.Helper()
	server := redistest.Start(t)
	s := &stack{cable: redistest.NewProxy(t, server.Addr())}

	s.jaeger = startJaeger(t, "jaeger")

	bin := build(t, "examples", "orders")
	addrs := freeAddrs(t, 4)
	peers := fmt.Sprintf("http://%s,http://%s", addrs[0], addrs[1])
	s.a = s.startOrders(t, bin, "orders-a", orders, addrs[0], "-load", "10", "-peers", peers, "-hold", reportHold.String(), "-wait", "10s",
		"-agent", s.startAgent(t))
	s.b = s.startOrders(t, bin, "orders-b", orders, addrs[1], "-load", "10", "-peers", peers, "-hold", reportHold.String(), "-wait", "10s")
	s.idle = s.startOrders(t, bin, "patient", patient, addrs[2], "-load", "0", "-hold", "10m")

	startExporter(t, server, addrs[3])

	s.prometheus = startPrometheus(t, scrapeEvery, map[string][]string{
		orders: {addrs[0], addrs[1]}, patient: {addrs[2]}, "redis": {addrs[3]},
	}, shippedRules(t)) // as users get them
	return s
}

// startAgent starts an agent, and returns its socket.
func (s *stack) startAgent(t *testing.T) (socket string) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.cable.Addr()})
	a, err := agent.New(rdb, agent.Config{})
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(t.TempDir(), "agent.sock")
	l, err := agent.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(a.Close(context.Background()), <-served, rdb.Close()); err != nil {
			t.Error(err)
		}
	})
	return socket
}

// startExporter shows the metrics of a Redis at addr.
func startExporter(t *testing.T, server *redistest.Server, addr string) {
	t.Helper()
	launch(t, "redis-exporter", nil,
		installed(t, "prometheus-redis-exporter", "apt-get update && apt-get install -y prometheus-redis-exporter"),
		"-redis.addr", "redis://"+server.Addr(), "-web.listen-address", addr).ready(t, "http://"+addr+"/metrics")
}

func (s *stack) startOrders(t *testing.T, bin, name, service, addr string, args ...string) *instance {
	t.Helper()
	args = append([]string{
		"-addr", addr, "-redis", s.cable.Addr(), "-otlp", s.jaeger.otlp, "-service", service,
		"-lease", leases[service].String(), "-workers", strconv.Itoa(workers), "-trace-url", s.jaeger.url + "/trace/{trace_id}",
	}, args...)
	env := append(plainEnv(),
		"OTEL_BSP_SCHEDULE_DELAY=500") // ms; spans are waited for
	i := &instance{program: launch(t, name, env, bin, args...), url: "http://" + addr}
	i.ready(t, i.url+"/healthz")
	return i
}

// plainEnv takes away what the environment of this test may say to otelsetup.
func plainEnv() []string {
	return []string{
		"NO_COLOR=1", "OTEL_SDK_DISABLED=", "OTEL_SERVICE_NAME=", "OTEL_RESOURCE_ATTRIBUTES=", "OTEL_TRACES_EXPORTER=", "OTEL_METRICS_EXPORTER=",
		"OTEL_TRACES_SAMPLER=",
	}
}

// cut takes Redis away from the services, as a network that rejects them would.
func (s *stack) cut(t *testing.T) {
	t.Helper()
	s.cable.Refuse(t)
	s.cable.CutAll()
}
