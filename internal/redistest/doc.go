// Package redistest gives tests a real Redis: servers of their own on free
// loopback ports, one shared server per test binary, the larger shapes
// (replication, Sentinel, Cluster) and a TCP proxy that misbehaves on demand.
//
// A test that stops, starves or reconfigures its server calls [Start]. All
// others call [Shared], which costs a key prefix instead of a process; their
// package's TestMain is
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// which also fails the run when goroutines were left behind (goleak).
//
// # What can be relied on
//
//   - Nothing is skipped: without a redis-server the test fails and says how to
//     install one. LOCKDOG_REDIS_SERVER names another binary to run.
//   - Servers listen on 127.0.0.1 only, keep their files in a temporary folder
//     of their own, and end with the test, or with the test binary when that
//     dies (on Linux the kernel sees to it).
//   - A port stays its server's own for as long as the test binary lives, also
//     while the server is down: no other test, and no test of another binary
//     that runs at the same time, is given it. So a client that keeps dialing
//     a killed server never reaches a stranger.
//   - Helpers that take a [testing.TB] end the test on failure, and so must be
//     called from the test's own goroutine.
//
// Redis 6.2 or newer is needed; some tests need 7.0. Pausing uses SIGSTOP, so this package builds on
// Unix only.
package redistest
