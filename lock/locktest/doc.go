// Package locktest gives tests a lock.Client without a Redis: the real client of package lock, with its watchdog, waiting and
// telemetry, over a server in memory. It works inside a bubble of testing/synctest, where a lease of thirty seconds
// runs out in no time:
//
//	func TestImportStopsWhenTheLockIsLost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := locktest.New(t)
//			lease, err := srv.Client().Mutex("imports:nightly").Lock(t.Context())
//			if err != nil {
//				t.Fatal(err)
//			}
//			srv.Lose("imports:nightly", lock.CauseTaken)
//			<-lease.Done()
//			// ... what did the code under test do?
//		})
//	}
//
// Inside a bubble call New inside it, too: a client's channels and timers belong to the bubble they were made in.
//
// # Failures and delays
//
// FailAcquires, FailReleases and FailRenewals make every such call to the server fail; DelayAcquires and DelayReleases make it slow.
// lockdog reacts as it does with a Redis, so what comes of a failure depends on the error:
//
//   - ReplyError("LOADING Redis is loading the dataset in memory"): Redis refuses, for a while. Nothing was done. READONLY, NOREPLICAS,
//     CLUSTERDOWN and the like are such replies, too. TryLock tries four times, in about a tenth of a second. Lock waits until
//     Redis grants again, and fails when the errors have lasted for one lease, WithWait is over or ctx ends. Release goes on trying until
//     ctx ends, or else for what is left of the lease.
//   - ReplyError("NOPERM this user has no permissions to run the 'evalsha' command"): Redis refuses, for good, as it does with OOM. Nothing was
//     done. All of them return the error at once.
//   - Any other error, such as io.EOF or errors.New("connection reset by peer"): the network failed. Here nothing was done, but lockdog doesn't
//     know that. TryLock tries four times, and so does Lock, unless it was waiting for the lock already: then it goes on as with
//     LOADING. Release goes on trying, too.
//   - ErrReplyLost: the network failed after the server did what it was asked to. lockdog tries again as with any other
//     error of the network. A release has freed the lock, but Release and Do return that it is unconfirmed; call FailReleases(nil) in
//     time, and the next try confirms it. A lock that was granted without its client knowing is held until the client gives it back, or its
//     lease ends.
//
// The error that a caller gets wraps the one given here. A handler that answers 409 for lock.ErrHeld, and 503 for other errors, is tested like this:
//
//	srv.Hold("orders:42", "another process") // 409
//	srv.FailAcquires(io.EOF)                 // 503
//
// What the server does is what the scripts of package lock do on a Redis that is one server, and that neither fails nor is slow unless
// told to. What failovers and clusters do to a lock, it can't show.
package locktest
