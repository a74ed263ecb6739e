// Package fleet reads from Redis which locks are held and awaited, by all the programs that use it: those with lockdog, and those with Redisson. It is
// what the command lockdog shows.
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
//			fmt.Println(g.Waits[step.Wait].ClientID, "holds", step.Holds.Name, "and waits for", g.Waits[step.Wait].Name)
//		}
//	}
//
// It only reads, with plain commands (SCAN, TIME, HLEN, HSCAN, HMGET, PTTL, GET, ZCARD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZMSCORE, LLEN, LRANGE, PUBSUB NUMSUB), at the
// primaries. What it returns was true when Redis was asked, key after key: it isn't one moment's state of all locks, and a lock may have changed hands since. To know
// one lock's holder for sure at one moment, use Inspect of package lock.
//
// # What it can't see
//
//   - Of a Graph: waits that haven't lasted for a second (or what WithWaitGraph sets), those of Redisson and of versions of lockdog before WithWaitGraph, and those of programs whose
//     Redis user may not write the records; of the waits that carry the same lease and wait for the same lock all but one; leases that a wait's ctx doesn't carry; and deadlocks through semaphores, latches and Quorums, or through a lock with more than 100 readers.
//   - Of a read-write lock with more than 10,000 readers, which of the others let their leases run out: they count. So do all waiters behind the first 10,000 in a queue.
//   - Who holds the permits of a semaphore: Redis has no names of them, only when each runs out.
//   - Unleased semaphores and latches: in Redis each is a number like any other.
//   - A lock that nobody holds while some wait for it, as between two holders: Locks doesn't list it, Look shows it.
//   - Waiters that Redis has no entry of. A client is in the wait set of a Mutex once, for the first of its waiters, and only if it hears of releases; its other waits, and those
//     for a semaphore, are known once they are in the wait graph, where those that carry the same lease and wait for the same lock are one. Redisson's waiters are only in the
//     queue of a fair lock.
//   - That a waiter has given up within the last two seconds, or died within three; and, if the user may not use PUBSUB NUMSUB (in a Cluster SHARDNUMSUB), since the last release.
package fleet
