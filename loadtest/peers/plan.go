package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/work"
)

// workload is a piece of work at which peers are compared.
type workload struct {
	name       string
	title      string
	kind       string
	peers      []string
	processes  int
	goroutines int
	pause      time.Duration
	rtt        time.Duration // round trip from the clients to Redis; 0: none is added
	cluster    bool
	oneCPU     bool          // everything shares one CPU
	lease      time.Duration // 0: the usual one
	base       string        // the peer by whose figure (key) the others are divided in the table
	key        figures.Key
	columns    []figures.Key
}

const (
	// Locks are held for a much shorter time. So no lease is renewed, as is usual for short work.
	lease = 30 * time.Second
	// lossLease is short, because the work waits for a renewal.
	lossLease   = 1500 * time.Millisecond
	lossRenewal = lossLease / 3
	// toldSlack allows for the delay and the duration of a renewal.
	toldSlack = 50 * time.Millisecond

	longestPause = 10 * time.Millisecond
)

var (
	operations = []figures.Key{
		figures.P50, figures.P99, figures.Rate, figures.Commands, figures.InLua,
		figures.Allocs, figures.Bytes, figures.ClientCPU, figures.RedisCPU,
	}
	contended = []figures.Key{
		figures.Handoffs, figures.HandoffP50, figures.P50, figures.P99, figures.Longest, figures.Commands,
		figures.InLua,
		figures.Goroutines, figures.Processes, figures.Stuck, figures.ClientCPU, figures.RedisCPU,
	}
	// With many callers, some may get no turn.
	crowded = []figures.Key{
		figures.Rate, figures.P50, figures.P99, figures.Unserved, figures.Commands, figures.InLua,
		figures.Allocs, figures.Bytes, figures.ClientCPU, figures.RedisCPU,
	}
	losses = []figures.Key{figures.ToldForce, figures.ToldDel, figures.ToldFlush, figures.ToldNever}

	libraries = []string{peer.Redislock, peer.Redsync, peer.Rueidislock, peer.Lockdog}
	single    = append(append([]string{peer.Floor}, libraries...), peer.LockdogSDK)
	trying    = append([]string{peer.RawScript}, libraries...)
	queueing  = append([]string{peer.Gate}, libraries...)
	batching  = peer.WithPools(peer.Floor, peer.Rueidislock, peer.Lockdog)
)

// crowd is a large number of callers.
const crowd = 2048

// distances has the round trip between two zones of a region, and the one between two close regions.
var distances = []time.Duration{2 * time.Millisecond, 10 * time.Millisecond}

// workloads has all workloads, in the order in which they are measured and printed.
var workloads = slices.Concat(nearby, far())

var nearby = []workload{
	{
		name: "single", title: "Lock and release, 1 goroutine, distinct names", kind: work.Distinct, peers: single,
		processes: 1, goroutines: 1, base: peer.Floor, key: figures.P50, columns: operations,
	},
	{
		name: "single-1cpu", title: "The same with everything on one CPU", kind: work.Distinct, peers: single,
		processes: 1, goroutines: 1, oneCPU: true, base: peer.Floor, key: figures.P50, columns: operations,
	},
	{
		name: "many", title: "Lock and release, 256 goroutines, distinct names", kind: work.Distinct,
		peers: peer.WithPools(single...), processes: 1, goroutines: 256,
		base: peer.Rueidislock, key: figures.Rate, columns: operations,
	},
	{
		name: "many-cluster", title: "The same in a cluster of three nodes", kind: work.Distinct,
		peers: batching, processes: 1, goroutines: 256, cluster: true,
		base: peer.Rueidislock, key: figures.Rate, columns: operations,
	},
	distinct("crowd", crowd),
	{
		name: "queue", title: "64 goroutines of one process, one name", kind: work.Shared, peers: queueing,
		processes: 1, goroutines: 64, base: peer.Gate, key: figures.Handoffs, columns: contended,
	},
	{
		name: "processes", title: "4 processes of 8 goroutines, one name", kind: work.Shared, peers: queueing,
		processes: 4, goroutines: 8, base: peer.Rueidislock, key: figures.Handoffs, columns: contended,
	},
	{
		name: "paced", title: "4 processes of 8 goroutines, one name, each pausing 0 to 10 ms after each lock",
		kind: work.Shared, peers: queueing, processes: 4, goroutines: 8, pause: longestPause,
		base: peer.Rueidislock, key: figures.HandoffP50, columns: contended,
	},
	{
		name: "held", title: "TryLock of a lock that another client holds, 1 goroutine", kind: work.Held, peers: trying,
		processes: 1, goroutines: 1, base: peer.RawScript, key: figures.P50, columns: operations,
	},
	{
		name: "held-1cpu", title: "The same with everything on one CPU", kind: work.Held, peers: trying,
		processes: 1, goroutines: 1, oneCPU: true, base: peer.RawScript, key: figures.P50, columns: operations,
	},
	{
		name:  "loss",
		title: "How long a holder isn't told that its lock is gone, at most; leases of 1.5 s. The others never tell",
		kind:  work.Loss, peers: []string{peer.Rueidislock, peer.Lockdog, peer.LockdogLoss},
		processes: 1, goroutines: 1, lease: lossLease, columns: losses,
	},
}

// far returns the workloads at a distance. Those at the first distance include one caller, and callers that want one
// name.
func far() []workload {
	var all []workload
	for i, rtt := range distances {
		for _, w := range nearby {
			switch {
			case i > 0:
				continue
			case w.name == "single":
				w.peers = []string{peer.Floor, peer.Redislock, peer.Rueidislock, peer.Lockdog}
			case w.kind == work.Shared:
				w.peers = []string{peer.Gate, peer.Rueidislock, peer.Lockdog}
			default:
				continue
			}
			all = append(all, w.at(rtt))
		}
		all = append(all, distinct("few", 64).at(rtt), distinct("many", 256).at(rtt), distinct("crowd", crowd).at(rtt))
	}
	return all
}

// distinct returns a workload of many goroutines, each with its own names.
func distinct(name string, goroutines int) workload {
	return workload{
		name: name, title: fmt.Sprintf("Lock and release, %d goroutines, distinct names", goroutines),
		kind: work.Distinct, peers: batching, processes: 1, goroutines: goroutines,
		base: peer.Rueidislock, key: figures.Rate, columns: crowded,
	}
}

// at returns the workload at a distance.
func (w workload) at(rtt time.Duration) workload {
	w.name, w.title, w.rtt = at(w.name, rtt), fmt.Sprintf("%s, %v round trip", w.title, rtt), rtt
	w.columns = append(slices.Clone(w.columns), figures.RoundTrip)
	return w
}

// at returns the name of a workload at a distance.
func at(name string, rtt time.Duration) string { return fmt.Sprint(name, "-", rtt) }

// targets has lockdog's promises in comparison with the others.
var targets = slices.Concat(nearTargets, farTargets(), crowdTargets())

var nearTargets = []figures.Target{
	most(peer.Lockdog, "1 goroutine: p50", "single", figures.P50, 1.05, peer.Floor, "µs"),
	most(peer.Lockdog, "1 goroutine, one CPU: p50", "single-1cpu", figures.P50, 1.35, peer.Floor, "µs"),
	most(peer.Lockdog, "1 goroutine: allocations", "single", figures.Allocs, 25, "", ""),
	most(peer.LockdogSDK, "1 goroutine, SDK metrics and sampled tracing: p50", "single", figures.P50, 1.45, peer.Floor,
		"µs"),
	least(peer.Lockdog, "256 goroutines: operations/s", "many", figures.Rate, 1.7, peer.Rueidislock, "/s"),
	most(peer.Lockdog, "256 goroutines: p99", "many", figures.P99, 1, peer.Rueidislock, "µs"),
	least(peer.Lockdog, "256 goroutines, cluster: operations/s", "many-cluster", figures.Rate, 1.2, peer.Rueidislock,
		"/s"),
	least(peer.Lockdog, "64 goroutines, one name: handoffs/s", "queue", figures.Handoffs, 1.1, peer.Gate, "/s"),
	most(peer.Lockdog, "64 goroutines, one name: commands per handoff", "queue", figures.Commands, 1+strays, "", ""),
	most(peer.Lockdog, "64 goroutines, one name: most turns of one / least", "queue", figures.Goroutines, 2, "", ""),
	most(peer.Lockdog, "64 goroutines, one name: longest wait", "queue", figures.Longest, 1.5, peer.Gate, "ms"),
	least(peer.Lockdog, "4 processes, one name: handoffs between them/s", "processes", figures.Handoffs, 1.6,
		peer.Rueidislock, "/s"),
	most(peer.Lockdog, "4 processes, one name: commands per handoff", "processes", figures.Commands, 6, "", ""),
	most(peer.Lockdog, "4 processes, one name: longest wait", "processes", figures.Longest, 0.5, peer.Rueidislock,
		"ms"),
	most(peer.Lockdog, "4 processes, one name: most turns of one / least", "processes", figures.Processes, 1.5, "", ""),
	most(peer.Lockdog, "4 processes, one name: waiters left behind", "processes", figures.Stuck, 0, "", ""),
	most(peer.Lockdog, "4 processes, pausing: handoff p50", "paced", figures.HandoffP50, 1, peer.Rueidislock, "µs"),
	most(peer.Lockdog, "4 processes, pausing: commands per handoff", "paced", figures.Commands, 5, "", ""),
	most(peer.Lockdog, "TryLock of a held lock: commands", "held", figures.Commands, 1+strays, "", ""),
	most(peer.Lockdog, "TryLock of a held lock: p50", "held", figures.P50, 1.05, peer.RawScript, "µs"),
	most(peer.Lockdog, "TryLock of a held lock, one CPU: p50", "held-1cpu", figures.P50, 1.5, peer.RawScript, "µs"),
	most(peer.Lockdog, "holder told of a forced unlock", "loss", figures.ToldForce, 50, "", "ms"),
	most(peer.Lockdog, "holder told of DEL, at the next renewal", "loss", figures.ToldDel,
		millis(lossRenewal+toldSlack), "", "ms"),
	most(peer.Lockdog, "holder told of FLUSHALL, at the next renewal", "loss", figures.ToldFlush,
		millis(lossRenewal+toldSlack), "", "ms"),
	most(peer.LockdogLoss, "holder told of DEL, WithLossNotifications", "loss", figures.ToldDel, 100, "", "ms"),
	most(peer.LockdogLoss, "holder told of FLUSHALL, WithLossNotifications", "loss", figures.ToldFlush, 100, "", "ms"),
	most(peer.LockdogLoss, "holder not told at all, WithLossNotifications", "loss", figures.ToldNever, 0, "", "times"),
	most(peer.Lockdog, "holder not told at all", "loss", figures.ToldNever, 0, "", "times"),
}

// farTargets returns the promises at a distance, where the number of round trips matters most.
func farTargets() []figures.Target {
	var all []figures.Target
	for _, rtt := range distances {
		all = append(all, least(peer.Lockdog, fmt.Sprintf("256 goroutines, %v: operations/s", rtt),
			at("many", rtt), figures.Rate, 1.2, peer.Rueidislock, "/s"))
	}
	rtt := distances[0]
	processes := at("processes", rtt)
	return append(all,
		most(peer.Lockdog, fmt.Sprintf("1 goroutine, %v: p50", rtt),
			at("single", rtt), figures.P50, 1.05, peer.Floor, "µs"),
		least(peer.Lockdog, fmt.Sprintf("64 goroutines, one name, %v: handoffs/s", rtt),
			at("queue", rtt), figures.Handoffs, 1.9, peer.Gate, "/s"),
		least(peer.Lockdog, fmt.Sprintf("4 processes, one name, %v: handoffs between them/s", rtt),
			processes, figures.Handoffs, 1.5, peer.Gate, "/s"),
		least(peer.Lockdog, fmt.Sprintf("4 processes, one name, %v: handoffs between them/s", rtt),
			processes, figures.Handoffs, 1.5, peer.Rueidislock, "/s"),
		mostOf(peer.Lockdog, fmt.Sprintf("4 processes, one name, %v: handoff p50", rtt),
			processes, figures.HandoffP50, 1.3, figures.RoundTrip),
	)
}

// crowdTargets returns the promises for many callers, near and far, with any pool: all are served, and about equally
// fast.
func crowdTargets() []figures.Target {
	var all []figures.Target
	for _, w := range workloads {
		if w.goroutines != crowd {
			continue
		}
		for _, who := range []string{peer.Lockdog, peer.Lockdog + peer.Pooled} {
			what := w.name + ", " + who + ": "
			all = append(all,
				most(who, what+"callers not served", w.name, figures.Unserved, 0, "", ""),
				mostOf(who, what+"p99", w.name, figures.P99, 4, figures.P50))
		}
	}
	return all
}

// strays allows for commands that no operation needs, per operation: a subscription, the start of a connection, and the
// acquire after a release that handed nothing over, as it does now and then because another process may wait.
const strays = 0.05

func most(who, what, in string, key figures.Key, limit float64, base, unit string) figures.Target {
	return figures.Target{What: what, Work: in, Peer: who, Key: key, AtMost: true, Limit: limit, Base: base, Unit: unit}
}

// mostOf limits a figure to a multiple of another figure of the same peer. Both are in µs.
func mostOf(who, what, in string, key figures.Key, limit float64, base figures.Key) figures.Target {
	t := most(who, what, in, key, limit, who, "µs")
	t.BaseKey = base
	return t
}

func least(who, what, in string, key figures.Key, limit float64, base, unit string) figures.Target {
	return figures.Target{What: what, Work: in, Peer: who, Key: key, Limit: limit, Base: base, Unit: unit}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// choose returns the workloads and peers with these names.
func choose(works, peers []string) []workload {
	var chosen []workload
	for _, w := range workloads {
		w.peers = slices.DeleteFunc(slices.Clone(w.peers), func(p string) bool { return !slices.Contains(peers, p) })
		if slices.Contains(works, w.name) && len(w.peers) > 0 {
			chosen = append(chosen, w)
		}
	}
	return chosen
}

func workNames() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

func peerNames() []string {
	var names []string
	for _, w := range workloads {
		for _, p := range w.peers {
			if !slices.Contains(names, p) {
				names = append(names, p)
			}
		}
	}
	return names
}
