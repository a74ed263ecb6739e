package memory_test

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// forms are what random commands look like: k is a key, m a name in it, v a value, n a whole number, i an index, f a
// score, b a bound of scores, t a lease.
var forms = []string{
	"exists k k", "del k", "del k k", "pexpire k t", "pexpire k t nx", "pexpire k t xx", "persist k", "pttl k", "pttl k",
	"get k", "set k v", "set k n", "set k v nx", "set k v xx", "set k n px t", "set k n keepttl", "set k v keepttl get", "set k n keepttl px t", "set k n px t keepttl",
	"set k v get", "set k n get nx", "incr k", "decr k", "incrby k n", "decrby k n",
	"hset k m v", "hmget k m m", "hset k m n m v m n", "hget k m", "hgetall k", "hexists k m", "hkeys k", "hlen k", "hdel k m", "hdel k m m m", "hincrby k m n",
	"lpush k m", "rpush k m m m", "lpop k", "lpop k i", "lindex k i", "llen k", "lrange k i i", "lrem k i m", "lpos k m",
	"zadd k f m", "zadd k f m f m f m", "zadd k nx f m", "zadd k xx f m f m", "zadd k gt f m", "zadd k lt ch f m f m", "zincrby k f m", "zrem k m", "zrem k m m", "zpopmin k",
	"zscore k m", "zcard k", "zcount k b b", "zrange k i i", "zrange k i i withscores", "zrangebyscore k b b", "zrangebyscore k b b withscores limit i i", "zremrangebyscore k b b",
}

var kinds = map[string][]string{
	"k": {"$a", "$b", "$c", "$d"},
	"m": {"x", "y", "z", "a:0-1", "''"},
	"v": {"text", "''", "007", "1.5", "9223372036854775807"},
	"n": {"1", "-1", "5", "0", "9223372036854775807", "-9223372036854775808", "+1", "x"},
	"i": {"0", "1", "2", "-1", "-2", "7", "-7", "x"},
	"f": {"1", "2", "2", "-1.5", "0.1", "0", "-0", "inf", "-inf", "1e17", "nan"},
	"b": {"0", "(1", "2", "(2", "-inf", "+inf", "(0.1", "-2", "x"},
	"t": {"3600000", "7200000", "99999999", "0", "-5"},
}

// somewhat makes a command of a form. One in thirty has a word too many, too few, or in the wrong place.
func somewhat(random *rand.Rand, form string) string {
	words := strings.Fields(form)
	for i, w := range words {
		if some := kinds[w]; some != nil {
			words[i] = some[random.IntN(len(some))]
		}
	}
	if len(words) > 2 && random.IntN(30) == 0 { // but for its first key
		i := 2 + random.IntN(len(words)-2)
		switch random.IntN(3) {
		case 0:
			words = append(words, words[i])
		case 1:
			words = append(words[:i:i], words[i+1:]...)
		case 2:
			words[i] = "zz"
		}
	}
	return strings.Join(words, " ")
}

// Both sides are told the same at random: what a command leaves behind is what the next one finds.
func TestRandomCommandsAnswerAsInRedis(t *testing.T) {
	t.Parallel()
	s := newSides(t)
	rounds := 30
	if full {
		rounds = 2000
	}
	for range rounds {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		s.fresh()
		for range 60 {
			s.do(somewhat(random, forms[random.IntN(len(forms))]))
		}
		s.look("a", "b", "c", "d")
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}
