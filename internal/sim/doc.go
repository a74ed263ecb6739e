// Package sim runs clients of lockdog through random faults in fake time: the real client over go-redis, proxies of
// pipes and miniredis, in a synctest bubble. A run is made up from its seed. Six workers of three clients, each of
// which stands for a process, contend for two locks. Two faults strike, each as a rule when a worker has just got a
// lock, and a calm follows. That takes about 15 seconds of fake time. Checked are
//
//   - exclusion: no two leases of a lock are live at one time, except those of readers, and as many of a semaphore as
//     it has permits;
//   - tokens: an exclusive lease of a lock has a larger token than all earlier leases of it;
//   - progress: a lock that somebody waits for is free for 100 ms at most. Around a fault, a lease, 2 s and the fault's
//     duration are added. After the last fault every worker gets a lock again;
//   - calls: every call returns. If it doesn't get the lock, the error is one of those that a fault or another holder
//     may cause.
//
// Exclusion and tokens aren't checked during a fault that makes Redis lose keys, nor for one lease after it. Unlike
// package chaos, which runs processes on real servers, it can't show what failovers, clusters and stopped processes do.
// `make sim` makes many runs. What goroutines do at one moment has no order: a seed makes faults of the same kinds and
// lengths again, not the same run.
package sim
