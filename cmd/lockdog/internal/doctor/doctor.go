// Package doctor finds out what on a Redis will hurt locks. It asks the servers, and tries what locks do. The results
// are facts. A table says what these mean. It deletes the keys of its tries, except the receipts of operations on
// semaphores and latches, which expire after five minutes, and one token counter per Options.Name: lockdog never
// deletes token counters.
package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/internal/hashslot"
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

// rank returns the level's place in the order, worst first.
func (l Level) rank() int { return slices.Index([]Level{Fail, Warn, Unknown, OK}, l) }

// Finding is the result of one check. Its fields are API: --json prints them.
type Finding struct {
	ID    string `json:"id"`
	Level Level  `json:"level"`
	Node  string `json:"node,omitempty"` // of a Cluster; omitted if the finding is about all nodes
	Found string `json:"found"`
	Means string `json:"means,omitempty"` // for locks; omitted for ok
	Fix   string `json:"fix,omitempty"`   // what to set or do; omitted for ok
}

// Options are the user's choices.
type Options struct {
	Name    string        // the names of probe locks begin with it
	Kinds   []string      // those that the service uses; nil: not known
	Timeout time.Duration // for each question, and each attempt to use a lock
}

// facts are the results of a question: fields of INFO, CLUSTER INFO and CONFIG GET by their names, and others by names
// of our own. "error" is the text of an error.
type facts map[string]string

// answer has the facts about one subject. The table's checks for that subject judge them.
type answer struct {
	about string
	node  string
	facts facts
}

// node is a primary, or the single server.
type node struct {
	name string // "" for a single server
	rdb  *redis.Client
}

// target is the Redis that is asked, and the answers so far.
type target struct {
	server *connect.Server
	opts   Options
	nodes  []node   // that answer
	key    string   // of a probe lock: key prefix and name
	keys   []string // to delete at the end

	mu      sync.Mutex // guards answers, and in askNodes nodes
	answers []answer
}

// questions are asked one after another, before askLocks. Each has Options.Timeout.
var questions = []func(ctx context.Context, t *target){
	askNodes, askCluster, askClocks, perNode(askInfo), perNode(askLatency), perNode(askScripts),
	perNode(askPubSub), perNode(askProxy), perNode(askRights),
}

// Run asks all questions, and judges the answers. The worst findings come first. The error is ctx.Err().
func Run(ctx context.Context, server *connect.Server, opts Options) ([]Finding, error) {
	t := &target{server: server, opts: opts}
	t.key = server.Prefix + t.fresh()
	t.keys = append(t.keys, t.key+":text", t.key+":none")
	defer t.cleanUp(ctx)
	for _, ask := range questions {
		asking, cancel := context.WithTimeout(ctx, opts.Timeout)
		ask(asking, t)
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	askLocks(ctx, t)
	return judge(t.answers), ctx.Err()
}

func (t *target) tell(about, node string, f facts, err error) {
	if err != nil {
		f["error"] = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = append(t.answers, answer{about, node, f})
}

// perNode returns a question that asks all nodes concurrently.
func perNode(ask func(ctx context.Context, t *target, n node)) func(context.Context, *target) {
	return func(ctx context.Context, t *target) {
		var all sync.WaitGroup
		for _, n := range t.nodes {
			all.Go(func() { ask(ctx, t, n) })
		}
		all.Wait()
	}
}

// askNodes finds the nodes that answer.
func askNodes(ctx context.Context, t *target) {
	cluster, ok := t.server.UniversalClient.(*redis.ClusterClient)
	if !ok {
		t.nodes = []node{{"", t.server.UniversalClient.(*redis.Client)}}
		return
	}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		n := node{rdb.Options().Addr, rdb}
		if err := rdb.Ping(ctx).Err(); err != nil && !refused(err) {
			t.tell("nodes", n.name, facts{}, err)
			return nil
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.nodes = append(t.nodes, n)
		return nil
	})
	if err != nil {
		t.tell("nodes", "", facts{}, err)
	}
	slices.SortFunc(t.nodes, func(a, b node) int { return cmp.Compare(a.name, b.name) })
}

// fresh returns a name that no program uses. It begins with Options.Name. All names with the same beginning are in one
// slot, and so share one token counter: any number of runs leaves only one. Its keys are deleted at the end.
func (t *target) fresh() string {
	base := "lockdog-doctor"
	if t.opts.Name != "" {
		base = t.opts.Name + ":" + base
	}
	for slot := hashslot.Of(t.server.Prefix + base); ; {
		name := base + "-" + strings.ToLower(rand.Text()[:10])
		if key := t.server.Prefix + name; hashslot.Of(key) == slot {
			t.keys = append(t.keys, key, "lockdog_wait:"+tagged(key), tagged(key)+":timeout")
			return name
		}
	}
}

// tagged returns a lock's key as its other keys and its channels (but a latch's) contain it: in braces, unless it has a
// '{'.
func tagged(key string) string {
	if strings.Contains(key, "{") {
		return key
	}
	return "{" + key + "}"
}

// cleanUp deletes t.keys, even after Ctrl-C. A key that it can't delete gets a short expiry.
func (t *target) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opts.Timeout)
	defer cancel()
	for _, key := range t.keys {
		if t.server.Del(ctx, key).Err() != nil {
			_ = t.server.PExpire(ctx, key, time.Second).Err()
		}
	}
}
