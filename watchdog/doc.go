// Package watchdog is the engine with which package lock keeps its leases alive: it renews many of them in few calls, and
// reports which are lost.
//
// No user of lockdog needs it. Everything it exports is there for package lock, and may change with any release. The one
// number that programs may want to name is [DefaultBatchSize], which stays.
//
// It knows no Redis. Config.Renew renews a batch of leases; each lease's Holder is told the outcome. A lease costs no
// goroutine, no timer and no allocation, only its own 112 bytes and a place in a list. The rest of this page is its design.
//
// # What it costs
//
// Leases of one node (a server), interval and TTL form a group. A group packs its leases into cohorts of up
// to BatchSize leases (B); one call per interval renews a cohort. N leases cost ceil(N/B) calls per interval, spread
// evenly over it: in any 100 ms at most the mean of that node, rounded up, plus one. 1,000 leases of 30 s, renewed
// every 10 s, are 0.4 calls a second, where a timer per lock makes 100.
//
// New cohorts take their phases from the golden ratio, so that also a mass acquire at one instant is a trickle from
// the first renewal on. A renewed cohort goes to the end of its group's ring: an interval later, or an even share
// after the last one if that is sooner. So the ring closes up by itself, within a round, when cohorts come or go.
// When the others have room for the leases of a cohort that was just renewed, it dissolves into them.
//
// # Life of a lease
//
//	           Watch              StopRenewal
//	unwatched ───────▶   kept    ─────────────▶ winding down ──▶ lost: expired
//	    │             │ renewed                      ▲   │
//	    │             │ every interval               │   │ Remove
//	    │ Watch, Interval 0 ─────────────────────────┘   ▼
//	    │             │                               removed
//	    │             ├─ Remove ──────────────────────▶ removed
//	    │             ├─ the server says so ──────────▶ lost: missing, taken
//	    │             └─ at the deadline ─────────────▶ lost: unreachable, stalled
//
// And of a cohort:
//
//	planned ──▶ ready ──▶ in flight ──▶ planned      renewed: sent + interval at the latest
//	              ▲           └───────▶ resting      all failed: the same leases again, after a pause that doubles
//	              └──────────────────────┘
//
// If only some leases of a batch failed, moved or are to be verified, these leave for an off-cycle cohort. It is renewed once,
// outside the rhythm, and its leases then join planned cohorts. The others keep their rhythm.
//
// # Invariants
//
//  1. Trust is local. A lease's deadline is the time before the last confirmed request was sent, plus TTL, less Margin.
//     It never moves backwards, and no answer moves it once it has passed.
//  2. A lease is lost at its own deadline, not earlier; by the scheduler or by Check, whoever is first; told once.
//  3. A planned renewal is never later than one interval after the last confirmed request (the grant's at first).
//  4. No two calls at a time for the same lease; at most 8 at a time for a node; none mixes nodes.
//  5. What is overdue (after a stall, failed calls, Verify) goes out nearest deadline first and at the pace above.
//     Deadlines override the pace, as far as they require it, and nothing else does.
//  6. A failed call is tried again until the deadline: after TTL/300 (5 ms at least), doubling up to TTL/15, give or
//     take a half. Only the leases that failed are.
//  7. No renewal starts after StopRenewal or Remove returned, and no answer in flight then lengthens the lease.
//  8. Foreign code runs without locks and off the scheduler. A panic in it fails its call, or nothing; renewals go on.
//  9. Holders are called one at a time, in the order of events; losses and alarms go before reports of renewals.
//     Lost is the last call a Holder gets.
//  10. Goroutines: one scheduler from the first lease until Close, one per call in flight, one while there is
//     something to tell.
//
// # What is not guaranteed
//
//   - That the server agrees. A lease can be gone long before its deadline; the next renewal tells. Mutual exclusion
//     rests on the server's clock running no faster than Margin allows for, and on fencing beyond that.
//   - That a Holder hears of the loss in time. Callbacks wait for those before them, and timers are late when the CPU
//     is short: ask Check, which compares the clock itself.
//   - Punctuality under load. Schedule lag is measured (Batch, Renewal.Lag), and a lease that ran out because of it
//     is lost as stalled. Where many different intervals meet in one node calls are made early rather than late,
//     but one may still be late by 100 ms.
//   - That a lease is released, when it is removed, lost or when the engine is closed: that is the caller's.
//   - Patience with callbacks that never return: all later ones wait, while renewals and deadlines go on.
package watchdog
