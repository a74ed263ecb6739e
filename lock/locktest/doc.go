// Package locktest gives tests a lock.Client without a Redis: the real client of package lock, with its watchdog, waiting and
// telemetry, over the real go-redis and a miniredis in this process. It opens no socket, and works inside a bubble of
// testing/synctest, where a lease of thirty seconds runs out in no time:
//
//	func TestImportStopsWhenTheLockIsLost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := locktest.New(t)
//			lease, err := srv.Client().Mutex("imports:nightly").Lock(t.Context())
//			if err != nil {
//				t.Fatal(err)
//			}
//			srv.Lose("imports:nightly", lock.CauseTaken)
//			<-lease.Ended() // and lease.Context().Done()
//			// ... what did the code under test do?
//		})
//	}
//
// Inside a bubble call New inside it, too: a client's channels and timers belong to the bubble they were made in.
//
// A client begins to listen for what others do with its locks when it has been granted one. Here Lose and ForceUnlock
// wait until it does, for a millisecond at most in a bubble. Of what a Redis tells before that, it learns at its next
// renewal only, and then a forced loss is lock.CauseMissing.
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
//   - Any other error, such as io.EOF, context.DeadlineExceeded or errors.New("connection reset by peer"), but not context.Canceled: the
//     network failed. The client gets it as one of go-redis, wrapped in a *net.OpError. Here nothing was done, but lockdog doesn't know that.
//     TryLock tries four times, and so does Lock, unless it was waiting for the lock already: then it goes on as with LOADING. Release goes on
//     trying, too.
//   - ErrReplyLost: the network failed after the server did what it was asked to. lockdog tries again as with any other
//     error of the network. A release has freed the lock, but Release and Do return that it is unconfirmed; call FailReleases(nil) in
//     time, and the next try confirms it. A lock that was granted without its client knowing is taken when TryLock or Lock has failed. The
//     client gives it back by itself, within moments; if releases fail, too, it stays taken for a lease.
//
// The error that a caller gets wraps the one given here. It matches lock.ErrUnavailable if the network failed, or Redis doesn't serve now;
// that of Do matches lock.ErrUnconfirmed, too, if only the release failed. A service may turn them into these answers:
//
//	func status(err error) int {
//		switch {
//		case err == nil, errors.Is(err, lock.ErrUnconfirmed): // the work is done: nobody should repeat it
//			return http.StatusOK
//		case errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrClosed):
//			return http.StatusServiceUnavailable
//		case errors.Is(err, context.DeadlineExceeded): // also while it waited for a lock that is held
//			return http.StatusGatewayTimeout
//		case errors.Is(err, lock.ErrHeld):
//			return http.StatusConflict
//		default:
//			return http.StatusInternalServerError
//		}
//	}
//
// Then Hold tests the 409, FailAcquires(io.EOF) the 503 and FailReleases(io.EOF) the 200, as the example of FailAcquires shows.
//
// What the server does is what the scripts of package lock do on a Redis that is one server, and that neither fails nor
// is slow unless told to. What failovers and clusters do to a lock, it can't show. It has no replicas: that none confirms
// (lock.WithReplicas), it says at once. It refuses what lock.WithLossNotifications asks for, as a proxy may, which the
// client logs.
package locktest
