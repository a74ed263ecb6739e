package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/internal/acl"
)

// rules are those of the Mutex, and what each other kind and option needs beside them.
var rules = append([]acl.Row{acl.Mutex}, acl.Others...)

// optional are the rows that are checked only if the user chose them.
var optional = map[string]bool{"quorum": true, acl.RedissonTokens: true, acl.Replicas: true, acl.LossNotifications: true}

// Kinds are what Options.Kinds may have.
func Kinds() (ids []string) {
	for _, r := range rules {
		if r.ID != acl.OneOfSeveral && r.ID != acl.OnCluster {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// slow are the rules of a Mutex without which it works, with what is lost.
var slow = map[string]bool{
	"+publish": true, "+pubsub|numsub": true, "&redisson_lock__channel:*": true, "&lockdog:control:*": true, "+subscribe": true, "+unsubscribe": true,
	"+ping": true, "+mget": true, "+mset": true,
}

// tries are commands as they are tried. "K" is a key that holds a text, "N" one that doesn't exist, "C" a channel. Redis checks rights before anything but the
// number of arguments, so most fail, or find nothing, on purpose.
var tries = map[string]string{
	"evalsha": "evalsha 0000000000000000000000000000000000000000 0", "eval": "eval return(1) 0", "ping": "ping", "time": "time", "hgetall": "hgetall N",
	"hexists": "hexists N f", "hmget": "hmget N f", "hset": "hset N f v odd", "hdel": "hdel N f", "pttl": "pttl N", "pexpire": "pexpire N 1000",
	"pexpireat": "pexpireat N 1", "set": "set K x px 10000", "mget": "mget N", "mset": "mset N v N", "exists": "exists N", "del": "del N", "publish": "publish C 0",
	"pubsub|numsub": "pubsub numsub C", "zadd": "zadd N notanumber m", "zcard": "zcard N", "zrange": "zrange N 0 -1", "zrem": "zrem N m", "zscore": "zscore N m",
	"lindex": "lindex N 0", "lrange": "lrange N 0 0", "lrem": "lrem N 0 m", "rpush": "rpush K m", "zcount": "zcount N 0 1",
	"zrangebyscore": "zrangebyscore N 0 1", "persist": "persist N", "get": "get N", "hget": "hget N f", "hscan": "hscan N 0", "hlen": "hlen N", "hkeys": "hkeys N",
	"zremrangebyscore": "zremrangebyscore N 0 0", "incr": "incr K", "incrby": "incrby K 1", "decr": "decr K", "decrby": "decrby K 1", "wait": "wait 0 1",
	"client|id": "client id", "client|tracking": "client tracking off", "zmscore": "zmscore N m", "cluster|slots": "cluster slots",
	"spublish": "spublish C 0", "pubsub|shardnumsub": "pubsub shardnumsub C",
}

// askRight reports whether Redis refuses what a rule allows, and how it says so. Where that can't be known because another right is missing, it does: otherwise who
// does what the finding says would be told of the next right only then.
func (t *target) askRight(ctx context.Context, rdb *redis.Client, rule string) (missing bool, says string) {
	channel := prefixed("redisson_lock__channel", t.key)
	var err error
	switch rule[0] {
	case '~':
		key := t.place(rule[1:])
		for _, command := range [][]any{{"pttl", key}, {"hdel", key, "lockdog-doctor"}} { // to read, to write: nothing, as some keys are in use
			if err = rdb.Do(ctx, command...).Err(); refused(err) && !aboutCommand(err) {
				return true, err.Error()
			}
		}
		return false, ""
	case '&':
		place := t.place(rule[1:])
		if err = rdb.Publish(ctx, place, "0").Err(); refused(err) && aboutCommand(err) {
			err = first(rdb.Subscribe(ctx, place))(ctx)
		}
		return refused(err), text(err)
	}
	switch command := rule[1:]; command {
	case "subscribe":
		err = first(rdb.Subscribe(ctx, channel))(ctx)
	case "ssubscribe":
		err = first(rdb.SSubscribe(ctx, channel))(ctx)
	case "unsubscribe", "sunsubscribe":
		err = unsubscribe(ctx, rdb, channel, command == "sunsubscribe")
	default:
		var args []any
		for word := range strings.FieldsSeq(tries[command]) {
			switch word {
			case "K":
				word = t.key + ":text"
			case "N":
				word = t.key + ":none"
			case "C":
				word = channel
			}
			args = append(args, word)
		}
		err = rdb.Do(ctx, args...).Err()
	}
	return refused(err) && aboutCommand(err), text(err)
}

// place is the key or channel of a rule's pattern for the probe lock.
func (t *target) place(pattern string) string {
	fixed := strings.TrimSuffix(pattern, "*")
	prefix, tail, named := strings.Cut(fixed, "job")
	switch {
	case named && pattern == "job*":
		return t.key
	case named && strings.HasPrefix(tail, "*}:"):
		if strings.Contains(t.key, "{") {
			return t.key + ":lockdog-doctor"
		}
		return "{" + t.key + "}:lockdog-doctor"
	case named:
		return prefixed(strings.TrimSuffix(prefix, ":{"), t.key)
	case pattern == fixed && strings.HasPrefix(fixed, "lockdog:"):
		return t.server.Prefix + fixed
	case strings.HasPrefix(fixed, "lockdog:"):
		return t.server.Prefix + fixed + t.name
	case strings.HasPrefix(fixed, "__redis__:"), strings.HasSuffix(fixed, "__"):
		if strings.HasSuffix(fixed, "__") {
			return fixed + "{" + t.key + "}"
		}
		return fixed
	}
	return prefixed(strings.TrimSuffix(fixed, ":"), t.key)
}

// aboutCommand reports whether a refusal is about the command, and not about its keys or channels.
func aboutCommand(err error) bool {
	return err != nil && !strings.Contains(err.Error(), "access a") && !strings.Contains(err.Error(), "access one of") && !strings.Contains(err.Error(), "access at least")
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// first reads the answer to a subscription.
func first(sub *redis.PubSub) func(context.Context) error {
	return func(ctx context.Context) error {
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(ctx)
		return err
	}
}

// unsubscribe subscribes, and ends that.
func unsubscribe(ctx context.Context, rdb *redis.Client, channel string, sharded bool) error {
	sub, end := rdb.Subscribe(ctx, channel), (*redis.PubSub).Unsubscribe
	if sharded {
		_ = sub.Close()
		sub, end = rdb.SSubscribe(ctx, channel), (*redis.PubSub).SUnsubscribe
	}
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(ctx); err != nil {
		if refused(err) && aboutCommand(err) { // so the right to end it can't be tried
			return err
		}
		return nil
	}
	if err := end(sub, ctx, channel); err != nil {
		return err
	}
	_, err := sub.Receive(ctx)
	return err
}

// rightsFindings try each right of docs/ACL.md at each node.
func rightsFindings(ctx context.Context, t *target) []Finding {
	return perNode(func(ctx context.Context, t *target, n node) (findings []Finding) {
		t.probe(t.key+":text", t.key+":none", t.key)
		lacking, says := make(map[string]bool), make(map[string]string)
		var mu sync.Mutex
		var all sync.WaitGroup
		tried, room := make(map[string]bool), make(chan struct{}, 4) // the text is there before what needs it
		_ = n.rdb.Set(ctx, t.key+":text", "x", t.opts.Timeout).Err()
		for _, row := range rules {
			if !t.chosen(row.ID) {
				continue
			}
			for _, rule := range row.Rules() {
				if tried[rule] {
					continue
				}
				tried[rule] = true
				all.Go(func() {
					room <- struct{}{}
					defer func() { <-room }()
					missing, said := t.askRight(ctx, n.rdb, rule)
					mu.Lock()
					defer mu.Unlock()
					lacking[rule], says[rule] = missing, said
				})
			}
		}
		all.Wait()
		if ctx.Err() != nil {
			return []Finding{unknown("acl", "", ctx.Err())}
		}
		for _, row := range rules {
			if t.chosen(row.ID) {
				findings = append(findings, t.judge(row, lacking, says))
			}
		}
		return findings
	})(ctx, t)
}

// chosen reports whether a row of the rules is to be checked.
func (t *target) chosen(id string) bool {
	switch {
	case id == acl.Mutex.ID || id == acl.OneOfSeveral || id == acl.WaitGraph: // which no program has to ask for
		return true
	case id == acl.OnCluster:
		return t.server.Mode == connect.Cluster
	case t.opts.Kinds == nil:
		return !optional[id]
	}
	return t.uses(id)
}

// uses reports whether the user said that the service uses a kind.
func (t *target) uses(id string) bool {
	return slices.Contains(t.opts.Kinds, id)
}

// judge is the finding about the rights of a row.
func (t *target) judge(row acl.Row, lacking map[string]bool, says map[string]string) Finding {
	f := Finding{ID: "acl_" + row.ID, Level: OK, Found: row.Kind + ": no right is missing"}
	isMutex := row.ID == acl.Mutex.ID
	var missing []string
	var quoted string
	level := Warn // a kind that the service may not use
	for _, rule := range row.Rules() {
		if !lacking[rule] {
			continue
		}
		missing, quoted = append(missing, t.rule(rule)), cmp.Or(quoted, says[rule])
		if isMutex && !slow[rule] || t.uses(row.ID) && !isMutex {
			level = Fail
		}
	}
	if len(missing) == 0 {
		return f
	}
	f.Level, f.Found = level, row.Kind+": missing "+strings.Join(missing, " ")+" ("+quoted+")"
	f.Fix = "give the Redis user these rules; docs/ACL.md lists all"
	if t.opts.Name == "" {
		f.Fix += ". If the user may touch certain names only, say with which they begin: --name job"
	}
	switch {
	case row.ID == acl.OneOfSeveral:
		f.Means = "a release wakes a waiter in each process, and not one of all: all but one find the lock taken again"
	case row.ID == acl.WaitGraph:
		f.Means = "no deadlock across processes is found, or waits of a second aren't shown"
		f.Fix += "; WithWaitGraph(0) does without"
	case row.ID == acl.OnCluster:
		f.Level, f.Means = Fail, "clients can't find the nodes, or waiters aren't woken"
	case isMutex && level == Warn:
		f.Means = "locks work, but waiters of other processes may try only when the holder's lease should have ended, and many locks at once take longer"
	case level == Warn:
		f.Means = "this kind fails for this user, or is slow; that is right if the service doesn't use it (--kind says which it uses)"
	default:
		f.Means = "calls of this kind fail"
	}
	return f
}

// rule is a rule with the names of this service in it.
func (t *target) rule(rule string) string {
	name := t.opts.Name
	if name == "" {
		name = "lockdog-doctor"
	}
	rule = strings.ReplaceAll(rule, "job", t.server.Prefix+name)
	for _, part := range []string{"~lockdog:", "&lockdog:"} {
		if strings.HasPrefix(rule, part) {
			return rule[:1] + t.server.Prefix + rule[1:]
		}
	}
	return rule
}
