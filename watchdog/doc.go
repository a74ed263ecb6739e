// Package watchdog is the engine by which package lock keeps its leases alive: it renews many leases in few calls, and
// reports those that are lost.
//
// No user of lockdog needs this package. All that it exports is for package lock and may change with any release,
// except [DefaultBatchSize], which programs may use.
//
// The engine doesn't know Redis. Config.Renew renews a batch of leases, and the engine reports each outcome to the
// lease's Holder. A lease costs no goroutine, no timer and no allocation, only its own 112 bytes and a place in a list.
// The rest of this page is the design.
//
// # What it costs
//
// Leases with the same node (a server), interval and TTL form a group. A group packs its leases into cohorts of up to
// BatchSize leases (B); a cohort is renewed by one call per interval. N leases cost ceil(N/B) calls per interval,
// spread evenly over the interval: in any 100 ms at most the mean of that node, rounded up, plus one. 1,000 leases of
// 30 s, renewed every 10 s, cost 0.4 calls a second; with a timer per lock they would cost 100.
//
// New cohorts take their phases from the golden ratio, so that the renewals are spread out even after a mass acquire at
// one instant. A group's ring is its planned cohorts in the order of their renewals. A renewed cohort goes to the end
// of the ring: its next renewal is an interval later, or an even share of the interval after the last cohort of the
// ring if that is sooner. So the ring becomes even again within an interval when cohorts come or go. If the other
// cohorts have room for all leases of a cohort that was just renewed, the leases are moved there and the cohort is
// deleted.
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
// Leases of a batch that live on another node now or are to be verified, and those that failed if others were renewed,
// go to an off-cycle cohort. It is renewed once, outside the ring. Then its leases join planned cohorts, or it becomes
// a planned cohort itself. The other leases of the batch are renewed as before.
//
// # Invariants
//
//  1. Trust is local. A lease's deadline is a time read before the last confirmed request was sent, plus TTL, less
//     Margin (at first Spec.Until, if earlier). It never moves backwards, and no answer moves it once it has passed.
//  2. Unless the server says so, a lease is lost at its own deadline, not earlier. The loss is reported once, unless
//     the engine is closed before.
//  3. A planned renewal is never later than one interval after the last confirmed request (the grant's at first).
//  4. No two calls at a time for the same lease; at most 8 at a time for a node; none mixes nodes.
//  5. Overdue calls (after a stall, failed calls, Verify) are made in the order of the latest times at which they
//     should start, at the pace above. Off-cycle calls let the others go first. The pace and this precedence are broken
//     only as far as a deadline requires it.
//  6. Leases whose renewal failed are tried again until their deadline: after TTL/300 (5 ms at least), doubling up to
//     TTL/15, ±50 %.
//  7. After StopRenewal (but see Spec.Until) or Remove has returned, the lease gets into no further call, and no answer
//     to a call in flight lengthens it. But such a call may still be sent to the server: see Batch.
//  8. Functions of Config and Holder run without the lock of the engine and not on the scheduler's goroutine. A panic
//     in Renew fails its call, one in Alarm ends the alarms of its lease, and other panics end only the function that
//     panicked. Renewals go on.
//  9. What may block (Renewal, Done, and what Lost and Alarm return) is called one at a time, in the order of events,
//     except that losses at deadlines and alarms go before reports of renewals. Lost and Alarm, which don't block, wait
//     for none of these calls, and Check calls Lost itself.
//  10. Goroutines: one scheduler from the first lease until Close, one per call in flight, and one while there are
//     callbacks to make, or up to two if some of these are Lost or Alarm.
//
// # What is not guaranteed
//
//   - That the server still has the lease. A lease can be deleted long before its deadline; the next renewal finds out.
//     Mutual exclusion needs a server clock that runs no faster than Margin allows for; beyond that it needs fencing.
//   - That Lost is called in time: timers are late when the CPU is busy. Check compares the deadline with the clock
//     itself.
//   - Punctual calls under load. The schedule lag is measured (Batch.Lag), and a lease that ran out because the
//     scheduler was late is lost as stalled. If a node has leases with many different intervals, calls are made early
//     rather than late, but one may still be late by 100 ms.
//   - That a lease is released when it is removed or lost, or when the engine is closed: the caller must release it.
//   - That Renewal, Done, and what Lost and Alarm return, are called after one of these calls has hung.
package watchdog
