// Package chaos gives lockdog its worst days: its tests, run by `make chaos`, put randomized faults on real Redis servers and on
// client processes that contend for locks, and check what these saw. Package history has the checks.
//
// A run is one seed: it decides the shape of Redis (one server, a primary with a replica, three Sentinels, behind either of
// go-redis's clients for them, a Cluster of 3+3, three servers under a Quorum), which kind of lock is contended for (kinds_test.go), what the clients do, and which faults
// come when. CHAOS_SEED=s CHAOS_RUNS=1 makes the same faults at the same times again; what they hit is up to the machine. A
// violated run prints its seed and what happened around the violation, and leaves the whole history in bin/chaos, and its
// schedule: in testdata/schedules it is played first from then on.
//
// The clients are processes: this test binary, started again. Each has a lock.Client, takes locks, takes some away by
// ForceUnlock, and writes under them to a store in the parent that is protected by tokens. All of them read one clock, the
// machine's monotonic one. Meanwhile the parent looks into Redis, past all proxies, for who has the locks there: what nobody holds,
// or asks for, mustn't stay, nor come.
//
// Faults of the network come from internal/redistest's proxy rather than from toxiproxy, whose toxics see bytes: ours sees
// requests and replies, so that it can drop the answer to one script, let a request come when nobody waits for it any
// more, or silence subscriptions alone. It is there, is tested, and needs no dozen of further modules. The servers' clocks are
// stepped by testdata/clock.c: Debian's libfaketime does not work with its redis-server (jemalloc asks for the time
// before libfaketime is ready, and it recurses until it gives up).
//
// A failover may lose a grant, which excuses two holders: until the deadline that the first had when its process moved to the new
// primary. The faults of faults_stale_test.go keep an old primary at work for longer than that, with leases of 2 to 30 s; a
// renewal that it takes from then on excuses nothing. It is cut off from the Sentinels and from its replica by taking the rights of the user
// that these log in as, so the clients still reach it. In a Cluster it is only stopped: a primary that is cut off from the other
// nodes refuses everything by itself.
//
// It needs Linux, a redis-server and a C compiler; what is missing fails the test. The build tag chaos keeps it out of
// `go test ./...`.
package chaos
