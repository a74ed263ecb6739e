// Package redistest gives tests a real Redis: separate servers on free loopback ports, one shared server per test
// binary, the larger shapes (replication, Sentinel, Cluster), and a proxy that injects faults. A [Fake] is a Redis for
// tests in fake time.
//
// A test that stops, slows down or reconfigures its one server calls [Start]. Other tests with one server call
// [Shared], which costs a key prefix instead of a process; their package's TestMain is
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// which also fails the run if goroutines were left behind (goleak).
//
// # What is guaranteed
//
//   - Nothing is skipped: without a redis-server the test fails and says how to install one. LOCKDOG_REDIS_SERVER names
//     another binary to run.
//   - Servers listen only on 127.0.0.1, have their own temporary folders, and end with the test (the shared one with
//     the test binary). If the test binary dies, the kernel kills them (on Linux).
//   - A port belongs to its server for as long as the test binary lives, even while the server is down: no other test
//     gets it, in this binary or in another one that runs at the same time. So a client that keeps dialing a killed
//     server never reaches the server of another test.
//   - Helpers that take a [testing.TB] end the test on failure. So they must be called from the test's goroutine.
//
// Redis 7.0, Valkey 8.0 or newer is needed. Pausing uses SIGSTOP, so this package builds only on Unix.
package redistest
