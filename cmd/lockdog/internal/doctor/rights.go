package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/internal/acl"
)

// rules are those of the Mutex, and what each other kind and option needs in addition.
var rules = append([]acl.Row{acl.Mutex}, acl.Others...)

// Kinds returns the allowed values of Options.Kinds.
func Kinds() (ids []string) {
	for _, r := range rules {
		if r.ID != acl.OneOfSeveral && r.ID != acl.OnCluster {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// uses reports whether the service uses a kind, according to the user.
func (t *target) uses(id string) bool { return slices.Contains(t.opts.Kinds, id) }

// chosen reports whether to check a row of the rules, or to make an attempt.
func (t *target) chosen(id string) bool {
	switch id {
	case acl.Mutex.ID, acl.OneOfSeveral, acl.WaitGraph, "renewal", "waiting": // on by default in every program
		return true
	case acl.OnCluster:
		return t.server.Mode == connect.Cluster
	case "quorum", acl.RedissonTokens, acl.Replicas, acl.LossNotifications: // few programs use these
		return t.uses(id)
	}
	return t.opts.Kinds == nil || t.uses(id)
}

// rows returns the rows to check.
func (t *target) rows() []acl.Row {
	return slices.DeleteFunc(slices.Clone(rules), func(r acl.Row) bool { return !t.chosen(r.ID) })
}

// slow has those rules of a Mutex without which it works, but may wait longer, or hear of a forced unlock only at the
// next renewal.
var slow = strings.Fields(
	"+publish +pubsub|numsub &redisson_lock__channel:* &lockdog:control:* +subscribe +unsubscribe +ping")

// calls try the rights for their commands. K is a key that holds a text, N a key that doesn't exist, C a channel. Redis
// checks rights before everything but the number of arguments. So most calls are made to fail, or to find nothing.
var calls = []string{
	"evalsha 0000000000000000000000000000000000000000 0", "eval return(1) 0", "ping", "time", "wait 0 1", "client id",
	"client tracking off", "cluster slots", "hgetall N", "hexists N f", "hmget N f", "hset N f v odd", "hdel N f",
	"hget N f", "hscan N 0", "hlen N", "hkeys N", "pttl N", "pexpire N 1000", "pexpireat N 1", "persist N", "exists N",
	"del N", "set K x px 10000", "get N", "incr K", "incrby K 1", "decr K", "decrby K 1", "publish C 0", "spublish C 0",
	"pubsub numsub C", "pubsub shardnumsub C", "zadd N notanumber m", "zcard N", "zrange N 0 -1", "zrem N m",
	"zscore N m", "zmscore N m", "zcount N 0 1", "zrangebyscore N 0 1", "zremrangebyscore N 0 0", "lindex N 0",
	"lrange N 0 0", "lrem N 0 m", "rpush K m",
}

// callsFor returns the calls that try a rule. For keys and channels, the calls use P, a key or channel that the rule
// allows.
func callsFor(rule string) []string {
	switch rule[0] {
	case '~':
		return []string{"pttl P", "hdel P lockdog-doctor"}
	case '&':
		return []string{"publish P 0"}
	}
	command := strings.Replace(rule[1:], "|", " ", 1) + " "
	return slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return !strings.HasPrefix(c+" ", command) })
}

// askRights tries the rights that docs/ACL.md lists for the chosen kinds.
func askRights(ctx context.Context, t *target, n node) {
	lacks, err := t.lacking(ctx, n.rdb)
	if err != nil {
		t.tell("rights", n.name, facts{"id": "acl"}, err)
		return
	}
	for _, row := range t.rows() {
		f := facts{"id": "acl_" + row.ID, "row": row.ID, "kind": row.Kind}
		if t.opts.Name == "" {
			f["hint"] = ". If the user may touch certain names only, say with which they begin: --name job"
		}
		var missing []string
		for _, rule := range row.Rules() {
			if says, ok := lacks[rule]; ok {
				missing = append(missing, t.spell(rule, t.server.Prefix+cmp.Or(t.opts.Name, "lockdog-doctor")))
				f["says"] = cmp.Or(f["says"], says)
				if (row.ID == acl.Mutex.ID || t.uses(row.ID)) && !slices.Contains(slow, rule) {
					f["needed"] = "yes"
				}
			}
		}
		f["missing"] = strings.Join(missing, " ")
		t.tell("rights", n.name, f, nil)
	}
}

// lacking returns the rules that Redis refuses, with its error. It includes a channel that can't be tried without
// another right: otherwise a user who grants the rights in a finding would then get the next finding, about that
// channel.
func (t *target) lacking(ctx context.Context, rdb *redis.Client) (map[string]string, error) {
	words := map[string]string{"K": t.key + ":text", "N": t.key + ":none", "C": "redisson_lock__channel:" +
		tagged(t.key)}
	lacks, sent, pipe := make(map[string]string), make(map[string][]*redis.Cmd), rdb.Pipeline()
	note := func(rule string, err error) {
		if refused(err) && (rule[0] == '&' || aboutCommand(err) == (rule[0] == '+')) {
			lacks[rule] = err.Error()
		}
	}
	pipe.Set(ctx, words["K"], "x", t.opts.Timeout)
	for _, row := range t.rows() {
		for _, rule := range row.Rules() {
			if strings.HasSuffix(rule, "subscribe") {
				note(rule, subscribe(ctx, rdb, rule[1:], words["C"]))
				continue
			}
			words["P"] = t.place(rule)
			for _, call := range callsFor(rule) {
				var args []any
				for word := range strings.FieldsSeq(call) {
					args = append(args, cmp.Or(words[word], word))
				}
				sent[rule] = append(sent[rule], pipe.Do(ctx, args...))
			}
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for rule, cmds := range sent {
		for _, cmd := range cmds {
			err := cmd.Err()
			if err != nil && !errors.As(err, new(redis.Error)) {
				return nil, err
			}
			if rule[0] == '&' && refused(err) && aboutCommand(err) {
				err = subscribe(ctx, rdb, "subscribe", t.place(rule))
			}
			note(rule, err)
		}
	}
	return lacks, nil
}

// subscribe sends SUBSCRIBE, or a command like it, on a new connection, and waits for the reply.
func subscribe(ctx context.Context, rdb *redis.Client, command, channel string) error {
	sub := rdb.Subscribe(ctx)
	defer func() { _ = sub.Close() }()
	send := map[string]func(context.Context, ...string) error{
		"subscribe": sub.Subscribe, "unsubscribe": sub.Unsubscribe, "ssubscribe": sub.SSubscribe,
		"sunsubscribe": sub.SUnsubscribe,
	}
	if err := send[command](ctx, channel); err != nil {
		return err
	}
	_, err := sub.Receive(ctx)
	return err
}

// aboutCommand reports whether a refusal is about the command, not about its keys or channels.
func aboutCommand(err error) bool { return !strings.Contains(err.Error(), " access ") }

// place returns a key or a channel that a rule allows. No lock uses it, unless the rule allows only one, such as
// ~lockdog:waiting.
func (t *target) place(rule string) string {
	return strings.ReplaceAll(t.spell(rule, t.key), "*", tagged(t.key))[1:]
}

// spell returns a rule of package acl for locks whose keys begin with key.
func (t *target) spell(rule, key string) string {
	tag, end := "{"+key, "}"
	if strings.Contains(key, "{") {
		tag, end = key, ""
	}
	return strings.NewReplacer(
		"{job*}", tag+"*"+end, "{job", tag, "job", key, "lockdog:", t.server.Prefix+"lockdog:").Replace(rule)
}
