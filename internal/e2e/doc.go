// Package e2e is the end-to-end test, run by `make e2e`: instances of examples/orders against a real redis-server,
// watched by a real Prometheus with the rules of dashboards/, and a real Jaeger. Everything is asserted from outside,
// through their HTTP APIs, as an operator would see it: traces, links from one process to the other, exemplars, alerts
// after Redis was cut off, and every query of the dashboards.
//
// Beside it is the soak test: fleets of processes (command fleet) that use every kind of lock. While all is well and
// they are restarted one by one, no alert may be pending, with two exceptions that the test names. Then each fleet but
// one gets a fault. A table says which alerts must fire for the fault, and which others may. No other alert may fire.
// The rules are those of dashboards/, ten times as fast.
//
// `make soak` runs it. Both need Linux and the programs that internal/ci/setup.sh and internal/ci/jaeger.sh get; what
// is missing fails the test. What the programs wrote stays in bin/e2e until the next run. The build tag e2e keeps it
// out of `go test ./...`.
package e2e
