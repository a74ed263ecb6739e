// Package sim runs clients of lockdog through random faults in fake time: the real client over go-redis, proxies of
// pipes and miniredis, in a synctest bubble. A run is made up from its seed: six workers in three processes contend for
// two locks, two faults strike, each as one of them has got a lock, and a calm follows. That takes about 15 seconds of
// fake time. Checked are
//
//   - exclusion: no two leases of a lock are live at one time, but for readers, and for the permits of a semaphore;
//   - tokens: those of a lock rise from grant to grant;
//   - progress: a lock that somebody waits for is free for 100 ms at most. Around a fault, a lease, 2 s and the fault's
//     duration are added. After the last fault every worker gets a lock again;
//   - calls: every call returns. If it fails, the error is one of those that a fault or another holder may cause.
//
// Unlike package chaos, which runs processes on real servers, it can't show what failovers, clusters and stopped
// processes do. `make sim` makes many runs. What goroutines do at one moment has no order: a seed makes faults of the
// same kinds and lengths again, not the same run.
package sim
