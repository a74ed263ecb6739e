package memory_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/lock/internal/memory"
)

// histories are commands that both sides are given, one line after the other on fresh keys.
var histories = []string{
	// Any keys.
	"exists $a; set $a 1; exists $a; exists $a $a $b; del $a $a $b; exists $a; del $b",
	"exists; del; EXISTS $a; nosuch $a; get; get $a $b; time 1",
	"set $a 1; pttl $a; pexpire $a 100000; pttl $a; persist $a; persist $a; pttl $a; pttl $b; persist $b; pexpire $b 1",
	"set $a 1; pexpire $a 0; exists $a; set $a 1; pexpire $a -1; exists $a; set $a 1; pexpireat $a 1; exists $a",
	"set $a 1; pexpireat $a 99999999999999; persist $a; pexpireat $a x; pexpireat $a 0; get $a; pexpireat $b 5",
	"set $a 1; pexpire $a x; pexpire $a 1.5; pexpire $a 9223372036854775807; pexpire $b 9223372036854775807; pexpire $a ''; pttl $a",
	"set $a 1; pexpire $a 100000 XX; pexpire $a 100000 nx; pexpire $a 200000 NX; pttl $a; pexpire $a 50000 gt; pttl $a",
	"set $a 1; pexpire $a 200000 GT; pttl $a; pexpire $a 200000 LT; pttl $a; pexpire $a 300000 LT; pexpire $a 100000 LT; pttl $a",
	"set $a 1; pexpire $a 300000; pexpire $a 400000 xx gt; pttl $a; pexpire $a 1 nx gt; pexpire $a 1 gt lt; pexpire $a 1 nx xx; pexpire $a 1 zz",
	"set $a 1; pexpire $a x zz; pexpire $b x; pexpire $b 1 nx xx; pexpire $a 100000 nx nx; pttl $a",
	"hset $a f v; pexpire $a 100000; hset $a g w; pttl $a; hdel $a f g; hset $a f v; pttl $a",
	"set $a 1; pexpire $a 100000; incr $a; pttl $a; set $a 2; pttl $a",

	// Strings.
	"get $a; set $a ''; get $a; set $a x; get $a; SET $a y; Get $a; set $a; set",
	"set $a 1 nx; set $a 2 NX; get $a; set $a 3 xx; get $a; set $b 1 XX; get $b; set $a 1 nx xx; set $b 1 xx nx",
	"set $a 1 px 100000; pttl $a; set $a 2 PX 200000 xx; pttl $a; set $a 3 nx px 5; pttl $a",
	"set $a 1 px; set $a 1 px x; set $a 1 px 0; set $a 1 px -1; set $a 1 px 9223372036854775807; set $a 1 zz; set $a 1 px x px 100000; pttl $a; set $a 2 px x zz; get $a",
	"set $a 1 get; set $a 2 GET; get $a; set $a 3 nx get; get $a; set $b 1 nx get; get $b; set $c 1 xx get; exists $c; set $a 4 get xx; get $a; set $a 5 get get px 100000; get $a; pttl $a; set $a 6 get; pttl $a",
	"hset $a f v; set $a 1 get; set $a 1 nx get; set $a 1 get zz; hgetall $a; set $a 1 get px 0; hgetall $a; set $a 1; get $a",
	"hset $a f v; get $a; set $a 1 xx; get $a; hget $a f",
	"incr $a; incr $a; decr $a; incrby $a 41; decrby $a 50; get $a; incrby $a x; incrby $a 1.0; decrby $a ''; incrby $a +1; incrby $a 01; incrby $a -0",
	"set $a x; incr $a; set $a ''; incr $a; set $a 1.5; decr $a; set $a 007; incr $a; set $a -7; incrby $a 0; rpush $b 1; incr $b; decrby $b x",
	"set $a 9223372036854775807; incr $a; incrby $a 1; decr $a; incrby $a 1; incrby $a 2; get $a",
	"set $a -9223372036854775808; decr $a; decrby $a -9223372036854775808; decrby $a 1; incr $a; incrby $a 9223372036854775808",

	// Hashes.
	"hget $a f; hset $a f 1; hget $a f; hget $a g; hset $a f 2 g 3; hgetall $a; hset $a g 4; hgetall $a; hset $a h 5 f 6 f 7; hgetall $a",
	"hset $a f; hset $a f v g; hset $a f v g w h; exists $a; hget $a; hset $a '' ''; hgetall $a; hget $a ''",
	"hset $a f 1 g 2 h 3; hkeys $a; hlen $a; hexists $a f; hexists $a x; hdel $a g x g; hkeys $a; hset $a g 9; hgetall $a; hdel $a f g h; exists $a; hdel $a f",
	"hmget $a f g; hset $a f 1 g 2; hmget $a g x f f; hmget $a f; hmget $a; set $b 1; hmget $b f",
	"hkeys $a; hlen $a; hexists $a f; hgetall $a; hdel $a f; exists $a",
	"hincrby $a f 1; hincrby $a f -5; hget $a f; hincrby $a f x; hset $a g x; hincrby $a g 1; hset $a h ''; hincrby $a h 1; hincrby $b f x; exists $b",
	"hset $a f 9223372036854775807; hincrby $a f 1; hincrby $a f 0; hincrby $a g -9223372036854775808; hincrby $a g -1; hincrby $a f -1; hgetall $a",
	"set $a 1; hget $a f; hset $a f v; hgetall $a; hexists $a f; hkeys $a; hlen $a; hdel $a f; hincrby $a f 1; hincrby $a f x; hset $a f",

	"hscan $a 0; hset $a f 1 g 2 h 3; hscan $a 0; hscan $a 0 count 10; HSCAN $a 0 COUNT 1; hscan $a x; hscan $a -1; hscan $a 0 count; hscan $a 0 count x; hscan $a 0 count 0; hscan $a; set $b 1; hscan $b 0",

	// Lists.
	"rpush $a x; lpush $a y; rpush $a z z; lpush $a 1 2; lrange $a 0 -1; llen $a; llen $b; rpush $a; lpush $a",
	"rpush $a a b c d; lindex $a 0; lindex $a 3; lindex $a 4; lindex $a -1; lindex $a -4; lindex $a -5; lindex $a x; lindex $b x; lindex $b 0",
	"rpush $a a b c d; lrange $a 1 2; lrange $a -2 -1; lrange $a 2 1; lrange $a 0 99; lrange $a -99 1; lrange $a 4 9; lrange $a -99 -98; lrange $a x 1; lrange $b 0 -1; lrange $b x 1",
	"rpush $a a b c; lrange $a 9223372036854775807 -1; lrange $a -9223372036854775808 9223372036854775807; lindex $a 9223372036854775807; lindex $a -9223372036854775808",
	"rpush $a a b c d; lpop $a; lpop $a 2; lpop $a 0; lpop $a 9; exists $a; lpop $a; lpop $a 2; lpop $a 0; lpop $a x; lpop $a -1; lpop $a 1 1",
	"rpush $a x y x y x; lrem $a 2 x; lrange $a 0 -1; lrem $a -1 y; lrange $a 0 -1; lrem $a 0 y; lrem $a 0 z; lrem $a q x; lrem $a -5 x; exists $a; lrem $a 0 x; lrem $b q x",
	"rpush $a x y x y x; lrem $a -2 x; lrange $a 0 -1; lrem $a 1 y; lrange $a 0 -1; lrem $a -9223372036854775807 x; lrange $a 0 -1",
	"rpush $a x y x; lpos $a x; lpos $a y; lpos $a z; lpos $b x; lpos $a; lpos $a x x; lpos $a x 1 2",
	"set $a 1; lindex $a 0; lindex $a x; llen $a; lpop $a; lpop $a x; lpush $a x; rpush $a x; lrange $a 0 1; lrange $a x 1; lrem $a 0 x; lpos $a x",

	// Sorted sets.
	"zadd $a 2 b 1 a 2 a2 2 a1; zrange $a 0 -1; zrange $a 0 -1 WITHSCORES; zcard $a; zscore $a b; zscore $a x; zscore $b x; zcard $b; zadd $a 3 b; zrange $a 0 -1",
	"zadd $a 1 a 2 a 3 a; zrange $a 0 -1 withscores; zadd $a 0.1 b 1e17 c 1e16 d -0.5 e 1e-7 f 123456789.125 g 1e400 h; zrange $a 0 -1 withscores",
	"zadd $a 0.1 b 1e17 c 1e16 d -0.5 e 1e-7 f 123456789.125 g inf h -inf i +inf j -0 k; zrange $a 0 -1 withscores; zscore $a b; zscore $a k",
	"zadd $a x a; zadd $a nan a; zadd $a '' a; zadd $a 1_0 a; zadd $a 0x10 a; zadd $a 0x1p3 b; zadd $a infinity c; zadd $a 5. d; zadd $a .5 e; zadd $a 1e f; zadd $a 1 a 2; zadd $a 1; exists $a; zrange $a 0 -1 withscores",
	"zadd $a nx 1 a; zadd $a NX 2 a 3 b; zrange $a 0 -1 withscores; zadd $a xx 5 a 6 c; zrange $a 0 -1 withscores; zadd $b xx 1 a; exists $b; zadd $a xx nx 1 a; zadd $a nx gt 1 a; zadd $a gt lt 1 a",
	"zadd $a 5 a; zadd $a gt 4 a 1 b; zrange $a 0 -1 withscores; zadd $a GT 6 a; zadd $a lt 7 a 9 b; zadd $a LT ch 1 a 1 b 1 c; zadd $a gt ch xx 8 a 8 b 8 d; zrange $a 0 -1 withscores; zadd $a ch 8 a; zadd $a nx ch 1 a 1 z",
	"zadd $a nx xx; zadd $a nx; zadd $a nx 1; zadd $a zz 1 a; zadd $a nx zz a; zadd $a xx nx x a",
	"zincrby $a 1.5 m; zincrby $a 1 m; zincrby $a -2.5 m; zincrby $a x m; zincrby $a inf m; zincrby $a -inf m; zincrby $a nan m; zrange $a 0 -1 withscores; zincrby $b nan m; exists $b; zincrby $b -0 m; zscore $b m; zincrby $b -0 m",
	"zadd $a 2 b 1 c 1 a; zpopmin $a; zpopmin $a; zcard $a; zpopmin $a; exists $a; zpopmin $a; zpopmin; hset $b f v; zpopmin $b",
	"zadd $a 1 a 2 b 3 c; zrem $a b x b; zrem $a a c; exists $a; zrem $a a; zrem $a",
	"zadd $a 1 a 2 b 3 c 4 d; zrange $a 1 2; zrange $a -2 -1; zrange $a 2 1; zrange $a -99 99; zrange $a 4 9; zrange $a x 1; zrange $a 0 1 zz; zrange $b 0 -1; zrange $b 0 x; zrange $a 0 0 withscores withscores",
	"zadd $a 1 a 2 b 2 c 3 d; zrangebyscore $a 2 3; zrangebyscore $a (2 3; zrangebyscore $a 2 (3 WITHSCORES; zrangebyscore $a -inf +inf; zrangebyscore $a (1 (3; zrangebyscore $a (2 (2; zrangebyscore $a 3 1; zrangebyscore $a -inf inf",
	"zadd $a 1 a 2 b 2 c 3 d; zrangebyscore $a -inf 9 limit 0 1; zrangebyscore $a -inf 9 LIMIT 1 2 withscores; zrangebyscore $a 0 9 limit 9 1; zrangebyscore $a 0 9 limit -1 1; zrangebyscore $a 0 9 limit 1 -1; zrangebyscore $a 0 9 limit 1 0; zrangebyscore $a 0 9 limit 0",
	"zadd $a 1 a; zrangebyscore $a 0 9 limit x 1; zrangebyscore $a x 9; zrangebyscore $a 0 (x; zrangebyscore $a nan 9; zrangebyscore $a 0 9 zz; zrangebyscore $b 0 9; zrangebyscore $b x 9; zrangebyscore $a 0 9 withscores limit 0 9 limit 0 0",
	"zadd $a -inf a 0 b inf c; zcount $a -inf +inf; zcount $a (-inf (+inf; zcount $a 0 0; zcount $a (0 1; zcount $a x 1; zcount $b 0 1; zcount $b x 1; zcount $a 1 -1",
	"zadd $a 1 a 2 b 3 c; zremrangebyscore $a (1 2; zrange $a 0 -1; zremrangebyscore $a 9 10; zremrangebyscore $a x 1; zremrangebyscore $b 0 1; zremrangebyscore $a -inf +inf; exists $a",
	"set $a 1; zadd $a 1 a; zadd $a x a; zrem $a a; zscore $a a; zcard $a; zincrby $a 1 a; zincrby $a x a; zcount $a 0 1; zcount $a x 1; zrange $a 0 1; zrange $a x 1; zrangebyscore $a 0 1; zremrangebyscore $a 0 1; zadd $a xx 1 a",
	"rpush $a x; zadd $a 1 a; hset $a f v; get $a; zadd $b 1 a; lpush $b x; hget $b f; hset $c f v; llen $c; zcard $c; incr $c",

	// Channels to which nobody listens.
	"publish $a x; spublish $a x; pubsub numsub; pubsub NUMSUB $a $b $a; pubsub shardnumsub; PubSub ShardNumSub $a $b; pubsub; pubsub nosuch; publish $a",
}

func TestCommandsAnswerAsRedisDoes(t *testing.T) {
	t.Parallel()
	s := newSides(t)
	for _, history := range histories {
		s.fresh()
		for line := range strings.SplitSeq(history, ";") {
			s.do(line)
		}
		s.look("a", "b", "c")
	}
}

// Every command is compared with Redis's.
func TestHistoriesHaveEveryCommand(t *testing.T) {
	t.Parallel()
	var used []string
	for _, history := range histories {
		for line := range strings.SplitSeq(history, ";") {
			used = append(used, strings.ToLower(strings.Fields(line)[0]))
		}
	}
	for _, name := range memory.CommandNames() {
		if !slices.Contains(used, name) {
			t.Errorf("no history has %s", name)
		}
	}
}
