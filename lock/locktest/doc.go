// Package locktest gives tests a lock.Client without a Redis. It is the real client of package lock, with its watchdog,
// waiting and telemetry, over the real go-redis and a miniredis in this process. It opens no socket, and works inside a
// bubble of testing/synctest, where a lease of thirty seconds runs out without real waiting:
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
// Call New inside the bubble too: a client's channels and timers belong to the bubble in which they were made.
//
// A client subscribes to the channel for losses and forced unlocks when it gets its first lock. Lose and ForceUnlock
// wait until it has subscribed: in a bubble at most a millisecond. With a real Redis, a message that comes earlier is
// missed: the client learns of the loss only at its next renewal, and a forced loss has the cause lock.CauseMissing or
// lock.CauseTaken.
//
// # Failures and delays
//
// FailAcquires, FailReleases and FailRenewals make every such call to the server fail. DelayAcquires and DelayReleases
// make it slow. lockdog reacts as with a real Redis, so the result of a failure depends on the error:
//
//   - ReplyError("LOADING Redis is loading the dataset in memory"): Redis rejects the call for some time. Nothing was
//     executed. READONLY, NOREPLICAS and CLUSTERDOWN are such replies too. TryLock tries four times, in about a tenth
//     of a second. Lock retries until Redis grants the lock; it fails if the errors have lasted for one lease, WithWait
//     is over or ctx ends. Release retries until ctx ends, for the rest of the lease at most.
//   - ReplyError("NOPERM this user has no permissions to run the 'evalsha' command"): Redis rejects the call for good.
//     OOM is such a reply too. Nothing was executed. All methods return the error at once.
//   - Any other error, such as io.EOF, context.DeadlineExceeded or errors.New("connection reset by peer"): the network
//     failed. (Don't give context.Canceled, or an error of package redis or lock: these mean something else to
//     lockdog.) The client gets the error as go-redis returns it, most errors wrapped in a *net.OpError. The server
//     executed nothing, but lockdog doesn't know that. TryLock tries four times. So does Lock, unless it was already
//     waiting for the lock: then it retries as with LOADING. Release retries too.
//   - ErrReplyLost: the network failed after the server had executed the call. lockdog retries as with any other
//     network error. A release has freed the lock, but Release and Do return an error: no reply confirmed it. If
//     FailReleases(nil) is called in time, the next try confirms it. After an acquire, the lock is held by a client
//     that doesn't know it, until TryLock or Lock has failed. Then the client releases it by itself within moments; if
//     releases fail too, it stays held for a lease.
//
// The error that a caller gets wraps the error given here. It matches lock.ErrUnavailable if the network failed, or
// Redis can't serve now. The error of Do also matches lock.ErrUnconfirmed if only the release failed. A service may
// answer with:
//
//	func status(err error) int {
//		switch {
//		case err == nil, errors.Is(err, lock.ErrUnconfirmed): // the work is done: it must not be repeated
//			return http.StatusOK
//		case errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrClosed):
//			return http.StatusServiceUnavailable
//		case errors.Is(err, context.DeadlineExceeded): // even if it waited for a held lock
//			return http.StatusGatewayTimeout
//		case errors.Is(err, lock.ErrHeld):
//			return http.StatusConflict
//		default:
//			return http.StatusInternalServerError
//		}
//	}
//
// Then Hold tests the 409, FailAcquires(io.EOF) the 503 and FailReleases(io.EOF) the 200: see the example of
// FailAcquires.
//
// The server runs the scripts of package lock like a single Redis that is fast and never fails, except for the faults
// that a test sets. It can't show failovers and clusters. It has no replicas, so lock.WithReplicas fails at once. It
// doesn't know the commands that lock.WithLossNotifications needs, like some proxies; the client logs that.
package locktest
