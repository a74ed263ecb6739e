// Package acl has the ACL rules that Redis users need for locks whose names start with "job". docs/ACL.md lists them.
// Tests of package lock run with all rules of Mutex and Others, and without each one. `lockdog doctor` tries them.
package acl

import "strings"

// Row has the rules of one kind of lock, or of an option.
type Row struct {
	ID       string // in the ids of doctor's findings
	Kind     string // for people
	Places   string // keys and channels
	Commands string
}

// Mutex has the rules for a Mutex. For other kinds and options they are the base: see Others. HELLO, AUTH and the like
// need no rule.
var Mutex = Row{
	ID: "mutex", Kind: "Mutex", Places: "~job* ~lockdog:fence:* &redisson_lock__channel:* &lockdog:control:*",
	Commands: "+evalsha +eval +subscribe +unsubscribe +ping " + // sent by clients; scripts call the others
		"+time +hgetall +hexists +hmget +hset +hdel +pttl +pexpire +pexpireat +set +exists +del +publish +pubsub|numsub",
}

// The IDs of rows that aren't for a kind of lock.
const (
	OneOfSeveral      = "one_of_several"
	WaitGraph         = "wait_graph"
	RedissonTokens    = "redisson_tokens"
	Replicas          = "replicas"
	LossNotifications = "loss_notifications"
	OnCluster         = "on_cluster"
)

// Others has what each other kind and option needs in addition to Mutex.
var Others = []Row{
	{OneOfSeveral, "one of several", "~lockdog_wait:{job*", "+zadd +zcard +zrange +zrem +zscore"},
	{WaitGraph, "WithWaitGraph", "~lockdog:waits:* ~lockdog:waiting", "+zadd +zremrangebyscore +hget +hkeys +hlen"},
	{
		"fair_mutex", "FairMutex", "~redisson_lock_queue:{job* ~redisson_lock_timeout:{job* ~lockdog_fair:{job*",
		"+lindex +lrange +lrem +rpush +zadd +zcard +zcount +zrem +zscore +zrange +zrangebyscore +persist",
	},
	{
		"rw_mutex", "RWMutex", "~{job*}:* &redisson_rwlock:*",
		"+get +hget +hscan +hlen +zadd +zrem +zrange +zremrangebyscore",
	},
	{
		"semaphore", "Semaphore", "~{job*}:* &redisson_sc:*",
		"+get +incr +incrby +decr +zadd +zrem +zscore +zrange +zrangebyscore +zcount",
	},
	{"unleased_semaphore", "UnleasedSemaphore", "~{job*}:* &redisson_sc:*", "+get +incrby +decrby"},
	{"latch", "Latch", "~{job*}:* &redisson_countdownlatch__channel__*", "+get +incrby"},
	{"multi", "Multi", "", "+get"},
	{"quorum", "Quorum", "", "+get"},
	{RedissonTokens, "WithRedissonTokens", "~redisson_lock_token:{job*", ""},
	{Replicas, "WithReplicas", "", "+wait"},
	{LossNotifications, "WithLossNotifications", "&__redis__:invalidate", "+client|id +client|tracking +zmscore"},
	{OnCluster, "on a Cluster", "", "+cluster|slots +ssubscribe +sunsubscribe +spublish +pubsub|shardnumsub"},
}

// Operator has the rules for a Redis user with which the command lockdog can show locks of all kinds. For a Cluster
// docs/ACL.md adds some.
var Operator = Row{
	Kind: "operator", Places: "~*",
	Commands: "+scan +hlen +hscan +hmget +pttl +get +zcard +zcount +zrange +zrangebyscore +zmscore +llen +lrange +time +pubsub|numsub +ping",
}

// Rules returns the rules of a row, one by one.
func (r Row) Rules() []string { return strings.Fields(r.Places + " " + r.Commands) }
