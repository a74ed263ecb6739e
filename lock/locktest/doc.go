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
// What the server does is what the scripts of package lock do on a Redis that is one server, never fails unless
// told to, and answers at once. What failovers, clusters and slow networks do to a lock, it can't show.
package locktest
