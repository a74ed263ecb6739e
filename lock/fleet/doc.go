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
// ZRANGEBYSCORE, ZMSCORE, LLEN, LRANGE, PUBSUB NUMSUB and SHARDNUMSUB), and only from primaries. It reads key after
// key, so a result isn't a snapshot of one moment, and a lock may have changed hands since. To read the holder of one
// lock atomically, use Inspect of package lock.
//
// # What it can't see
//
//   - In a Graph: waits shorter than a second (or than what WithWaitGraph sets); waits of Redisson, and of versions of
//     lockdog before WithWaitGraph; waits of programs whose Redis user may not write the records. If several waits
//     carry the same lease and wait for the same lock, it has only one of them. It doesn't see leases that aren't in a
//     wait's ctx, nor deadlocks of more than 16 waits, or through semaphores, latches, Quorums, or a lock with more
//     than 100 readers.
//   - In a read-write lock with more than 10,000 readers, which readers beyond those have let their leases run out: all
//     of them count. So do all waiters behind the first 10,000 in a queue.
//   - The holders of a semaphore's permits: Redis stores only when each permit runs out.
//   - Unleased semaphores and latches: in Redis each is a number like any other.
//   - A lock that has waiters but no holder, as between two holders: Locks doesn't list it, Look shows it.
//   - Waiters without an entry in Redis. A client is in the wait set of a Mutex once, for its first waiter, and only if
//     it receives release messages. Its other waits, and waits for a semaphore, are seen once they are in the wait
//     graph. Redisson's waiters are seen only in the queue of a fair lock.
//   - That a waiter has given up within the last two seconds, or died within the last three. A waiter that died in the
//     queue of a fair lock, or as a writer, is seen until its place ends: as a rule one lease after its last call. If
//     the user may not use PUBSUB NUMSUB (in a Cluster also SHARDNUMSUB), any of these may be seen for longer.
package fleet
