// Package doctor finds out what on a Redis will hurt locks. It asks the servers, tries what locks do, and says what to set. It removes the keys of its tries,
// except for one token counter per name, which lockdog never deletes.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/probe"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warn    Level = "warn"
	Fail    Level = "fail"
	Unknown Level = "unknown" // it couldn't be checked
)

// rank puts the worst first.
func (l Level) rank() int { return slices.Index([]Level{Fail, Warn, Unknown, OK}, l) }

// Finding is the result of one check. Its fields are API: --json prints them.
type Finding struct {
	ID    string `json:"id"`
	Level Level  `json:"level"`
	Node  string `json:"node,omitempty"` // of a Cluster; left out where the finding is about all nodes
	Found string `json:"found"`
	Means string `json:"means,omitempty"` // for locks; left out of an ok
	Fix   string `json:"fix,omitempty"`   // what to set or do; left out of an ok
}

// Options are what the user chose.
type Options struct {
	Name    string        // names of probe locks begin with it
	Kinds   []string      // those the service uses, nil: not known
	Timeout time.Duration // of each check
}

// node is a primary, or the single server.
type node struct {
	name string // "" for a single server
	rdb  *redis.Client
}

// target is what is checked.
type target struct {
	server *connect.Server
	opts   Options
	nodes  []node
	key    string // of the probe lock, with the key prefix
	name   string // of the probe lock, without it

	mu   sync.Mutex
	keys []string // to delete at the end
}

// check looks at one thing.
type check struct {
	id  string // of its finding where it can't be made
	run func(ctx context.Context, t *target) []Finding
}

// checks are in the order in which they run.
var checks = []check{
	{"cluster", clusterFindings},
	{"server", perNode(serverFindings)},
	{"write", perNode(writeFindings)},
	{"persistence", perNode(persistenceFindings)},
	{"clock", clockFindings},
	{"latency", perNode(latencyFindings)},
	{"scripts", perNode(scriptFindings)},
	{"pubsub", perNode(pubsubFindings)},
	{"proxy", perNode(proxyFindings)},
	{"acl", rightsFindings},
	{"kinds", kindFindings},
}

// Run makes all checks. The worst findings come first. The error is that of ctx.
func Run(ctx context.Context, server *connect.Server, opts Options) (findings []Finding, err error) {
	t := &target{server: server, opts: opts}
	t.name = probe.Name(server.Prefix, opts.Name, "lockdog-doctor")
	t.key = server.Prefix + t.name
	defer t.cleanUp(ctx)
	findings = t.findNodes(ctx)
	for _, c := range checks {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		findings = append(findings, c.run(ctx, t)...)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
	return findings, nil
}

// findNodes fills in the nodes that answer. Those that don't are findings.
func (t *target) findNodes(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	cluster, ok := t.server.UniversalClient.(*redis.ClusterClient)
	if !ok {
		if rdb, ok := t.server.UniversalClient.(*redis.Client); ok {
			t.nodes = []node{{"", rdb}}
		}
		return nil
	}
	var mu sync.Mutex
	var findings []Finding
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		n := node{rdb.Options().Addr, rdb}
		err := rdb.Ping(ctx).Err()
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !refused(err) {
			findings = append(findings, Finding{
				"node_reachable", Fail, n.name, "no answer: " + err.Error(),
				"locks in its slots can't be taken, renewed or released", "start the node, or let a replica take over",
			})
			return nil
		}
		t.nodes = append(t.nodes, n)
		return nil
	})
	if err != nil {
		findings = append(findings, unknown("node_reachable", "", err))
	}
	slices.SortFunc(t.nodes, func(a, b node) int { return cmp.Compare(a.name, b.name) })
	return findings
}

// perNode makes a check at all nodes at once, each with the time of a check.
func perNode(at func(ctx context.Context, t *target, n node) []Finding) func(context.Context, *target) []Finding {
	return func(ctx context.Context, t *target) (all []Finding) {
		results := make([][]Finding, len(t.nodes))
		var done sync.WaitGroup
		for i, n := range t.nodes {
			done.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
				defer cancel()
				results[i] = at(ctx, t, n)
				for j := range results[i] {
					results[i][j].Node = n.name
				}
			})
		}
		done.Wait()
		return slices.Concat(results...)
	}
}

// probe notes keys that are to be deleted at the end.
func (t *target) probe(keys ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = append(t.keys, keys...)
}

// cleanUp deletes the probe keys, also after Ctrl-C.
func (t *target) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opts.Timeout)
	defer cancel()
	slices.Sort(t.keys)
	for _, key := range slices.Compact(t.keys) {
		if t.server.Del(ctx, key).Err() != nil {
			_ = t.server.PExpire(ctx, key, time.Second).Err()
		}
	}
}

// unknown is the finding of a check that couldn't be made.
func unknown(id, node string, err error) Finding {
	f := Finding{ID: id, Level: Unknown, Node: node, Found: "can't be checked: " + err.Error(), Means: "it may be right or wrong", Fix: "check it by hand"}
	if refused(err) {
		f.Fix = "run doctor as a user who may, or check it by hand"
	}
	return f
}

// refused reports whether the ACL forbids it.
func refused(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOPERM") || errors.As(err, new(redis.Error)) &&
		(strings.Contains(err.Error(), "ACL failure") || strings.Contains(err.Error(), "user executing the script can't")) ||
		strings.Contains(err.Error(), "NOPERM"))
}

// sibling is another name in the slot of a probe's.
func (t *target) sibling(suffix string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%s%d", t.name, suffix, i); probe.SlotOf(t.server.Prefix+name) == probe.SlotOf(t.key) {
			return name
		}
	}
}
