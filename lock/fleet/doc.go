// Package fleet reads all locks in a Redis, with their holders and waiters. It sees the locks of every program
// that uses that Redis, with lockdog or with Redisson. The command lockdog shows what it reads.
//
//	reader, err := fleet.New(rdb, "")
//	if err != nil {
//		return err
//	}
//	for l, err := range reader.Locks(ctx, "orders:*") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(l.Name, l.Held, l.Waiting)
//	}
//
// Graph reads who waits for whom in all processes, and which waits are deadlocks:
//
//	reader, err := fleet.New(rdb, "")
//	if err != nil {
//		return err
//	}
//	g, err := reader.Graph(ctx)
//	if err != nil {
//		return err
//	}
//	for _, cycle := range g.Cycles {
//		for _, step := range cycle {
//			w := g.Waits[step.Wait]
//			fmt.Println(w.ClientID, "holds", step.Holds.Name, "and waits for", w.Name)
//		}
//	}
//
// The package only reads, with plain commands (SCAN, TIME, HLEN, HSCAN, HMGET, PTTL, GET, ZCARD, ZCOUNT, ZRANGE,
// ZRANGEBYSCORE, ZMSCORE, LLEN, LRANGE, PUBSUB NUMSUB or SHARDNUMSUB), and only from primaries. It reads key after
// key, so a result isn't a snapshot of one moment, and a lock may have changed hands since. To read the holder of one
// lock atomically, use Inspect of package lock.
//
// # What it can't see
//
//   - In a Graph: waits shorter than a second (or than what WithWaitGraph sets); waits of Redisson, and of versions of
//     lockdog before WithWaitGraph; waits of clients with WithWaitGraph(0), and of programs whose Redis user may not
//     write the records of the wait graph. If several waits carry the same lease and wait for the same lock, it has
//     only one of them. Of the leases that a wait carries, it sees 16 at most: those of the same client in the wait's
//     ctx, and those that a Multi has taken so far. It doesn't see deadlocks of more than 16 waits, or through
//     semaphores, latches, Quorums, or a lock with more than 100 readers.
//   - In a read-write lock with more than 10,000 readers, which readers beyond those have let their leases run out: all
//     of them count. So do all waiters behind the first 10,000 in a queue, and all clients behind the first 100 in the
//     wait set of a Mutex.
//   - The holders of a semaphore's permits: Redis stores no owner of a permit, only the permit's name and when it runs
//     out.
//   - Unleased semaphores and latches: in Redis each is a number like any other. Look shows it as a Number.
//   - A lock that has waiters but no holder, as between two holders: as a rule Locks doesn't list it, but Look shows
//     it.
//   - Waiters without an entry in Redis. Each waiter for a FairMutex has one, and so has the first waiter in a client's
//     queue for a Mutex or a write lock. The entry for a Mutex is in its wait set, which a client enters only if it
//     receives release messages and the holder isn't Redisson's. All other waits, such as those for a read lock, a
//     Multi or a semaphore, are seen once they are in the wait graph. Redisson's waiters are seen only in the queue of
//     a fair lock.
//   - That a waiter has given up within the last two seconds, or died within the last three. Some waiters are seen for
//     longer. One that died in the queue of a fair lock, or as a writer, is seen until its place ends: as a rule one
//     lease after its last call. One in a wait set whose machine died is seen until Redis drops its client's
//     connection. If the user may not use PUBSUB NUMSUB (in a Cluster SHARDNUMSUB), a waiter in a wait set is seen
//     as long as its entry is there.
package fleet
