// Package sim runs clients of lockdog through random faults in fake time. They are real clients, over the real
// go-redis. They reach a miniredis through proxies, over pipes in this process, in a synctest bubble. A seed decides
// which faults come and what the workers try. Six workers contend for two locks. They share three clients, each of
// which stands for a process. Two faults strike, each as a rule when a worker has just got a lock, and a calm follows.
// That takes about 15 seconds of fake time. In a third of the runs the clients have an agent: faults then also strike
// the agent, its network, and the pipes between it and the clients. The runs check:
//
//   - exclusion: no two leases of a lock are live at one time. Readers may share a lock, and a semaphore may have as
//     many leases as permits;
//   - tokens: an exclusive lease of a lock has a larger token than all earlier leases of it;
//   - progress: a lock that somebody waits for is free for 100 ms at most. Near a fault the limit is longer, by the
//     length of a lease, 2 s and the duration of the fault. After the last fault every worker gets a lock again;
//   - calls: every call returns. If it doesn't get the lock, the error is one of those that a fault or another holder
//     may cause.
//
// Faults of the agent excuse nothing: no lease is lost by them, and no lock waits.
//
// Exclusion and tokens aren't checked during a fault that makes Redis lose keys, nor for one lease after it. Unlike
// package chaos, which runs processes on real servers, it can't show what failovers, clusters and stopped processes do.
// `make sim` makes many runs. A seed doesn't decide which of several goroutines comes first at one moment. So the same
// seed makes faults of the same kinds and lengths again, but the runs may differ.
package sim
