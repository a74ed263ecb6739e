// Package chaos tests lockdog under faults. Its tests, run by `make chaos`, apply randomized faults to real Redis
// servers and to client processes that compete for locks, and check what these processes saw. Package history has the
// checks.
//
// A run is determined by a seed. It decides the shape of Redis (one server; a primary with a replica; three Sentinels,
// with either of go-redis's clients for them; a Cluster of 3+3; three servers under a Quorum), the kind of lock
// (kinds_test.go), what the clients do, and which faults come when. CHAOS_SEED=s CHAOS_RUNS=1 repeats the same faults
// at the same times; their effect depends on the machine. A run with a violation prints its seed and what happened
// around the first violation, and writes the whole history and its schedule to bin/chaos. The schedules in
// testdata/schedules are run first, unless CHAOS_SEED or a flag chooses the runs.
//
// The clients are processes: this test binary, started again. Each has a lock.Client (for a Quorum three), and takes
// locks. While it holds an exclusive lock, it writes to a store in the parent. In some runs it also takes locks away
// with ForceUnlock. The store checks tokens. All processes read the same clock, the machine's monotonic clock.
//
// In a third of the runs with leases, on the shapes that allow it, the processes renew through an agent, which is
// another process. It is stopped, killed, replaced and cut off. That excuses nothing: no lease may be lost by it.
//
// Meanwhile the parent reads from Redis, without a proxy, who holds the locks: a lock that nobody holds or asks for
// must not remain there, nor appear.
//
// Network faults come from the proxy of internal/redistest, not from toxiproxy, which sees only bytes. Our proxy sees
// requests and replies. So it can drop the reply to one script, deliver a request after its sender has given up, or
// block only subscriptions. It exists already, is tested, and doesn't add a dozen modules. testdata/clock.c makes the
// servers' clocks step. Debian's libfaketime doesn't work with its redis-server: jemalloc asks for the time before
// libfaketime is ready, and libfaketime recurses until it crashes.
//
// A failover may lose a grant. That excuses two holders, until the deadline that the first one had when its process
// moved to the new primary. The faults of faults_stale_test.go keep an old primary running for longer than that, with
// leases of 2 to 30 s. A renewal that the old primary accepts after that excuses nothing. With Sentinels the old
// primary is stopped, or cut off from the Sentinels and from its replica, or both. To cut it off, the rights of their
// user are revoked. Clients log in as another user, so they still reach it. In a Cluster it is only stopped, because a
// primary that is cut off from the other nodes refuses all commands by itself.
//
// It needs Linux, a redis-server and a C compiler. If one is missing, the test fails. Because of the build tag chaos it
// isn't part of `go test ./...`.
package chaos
