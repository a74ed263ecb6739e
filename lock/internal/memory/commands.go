package memory

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// serverError is an error as Redis answers it.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (serverError) RedisError() {}

const (
	errUnknown    = serverError("ERR Unknown Redis command called from script")
	errArity      = serverError("ERR Wrong number of args calling Redis command from script")
	errWrongType  = serverError("WRONGTYPE Operation against a key holding the wrong kind of value")
	errSyntax     = serverError("ERR syntax error")
	errNotInteger = serverError("ERR value is not an integer or out of range")
	errNotFloat   = serverError("ERR value is not a valid float")
	errOverflow   = serverError("ERR increment or decrement would overflow")
	errCutOff     = serverError("ERR locktest: this lease can't be renewed any more")
)

// missing is the answer to what Redis has, and this package doesn't.
func missing(command, option string) serverError {
	return serverError("ERR locktest: the memory server's " + command + " doesn't know " + option)
}

// status is a reply such as OK, which in Lua isn't the string OK.
type status string

// command is a command as scripts call it. The reply is an int64, a string, a status, a list ([]any), an error, or nil.
// What it is given are the arguments after its name.
type command struct {
	arity int // how many words it has, its name among them; negative: or more
	run   func(s *Server, args []string) any
}

// commands are those that our scripts need, by name. They answer what Redis 7.0 answers.
var commands = map[string]command{
	"time":      {1, timeOfDay},
	"exists":    {-2, exists},
	"del":       {-2, del},
	"pexpire":   {-3, pexpire},
	"pexpireat": {-3, pexpireat},
	"pttl":      {2, pttl},
	"persist":   {2, persist},

	"get":    {2, get},
	"set":    {-3, set},
	"incr":   {2, incr},
	"decr":   {2, decr},
	"incrby": {3, incrby},
	"decrby": {3, decrby},

	"hget":    {3, hget},
	"hmget":   {-3, hmget},
	"hset":    {-4, hset},
	"hscan":   {-3, hscan},
	"hgetall": {2, hgetall},
	"hexists": {3, hexists},
	"hkeys":   {2, hkeys},
	"hlen":    {2, hlen},
	"hdel":    {-3, hdel},
	"hincrby": {4, hincrby},

	"lindex": {3, lindex},
	"llen":   {2, llen},
	"lpop":   {-2, lpop},
	"lpush":  {-3, lpush},
	"rpush":  {-3, rpush},
	"lrange": {4, lrange},
	"lrem":   {4, lrem},
	"lpos":   {-3, lpos},

	"zadd":             {-4, zadd},
	"zrem":             {-3, zrem},
	"zpopmin":          {-2, zpopmin},
	"zscore":           {3, zscore},
	"zcard":            {2, zcard},
	"zincrby":          {4, zincrby},
	"zcount":           {4, zcount},
	"zrange":           {-4, zrange},
	"zrangebyscore":    {-4, zrangebyscore},
	"zremrangebyscore": {4, zremrangebyscore},

	"publish":  {3, publish},
	"spublish": {3, spublish},
	"pubsub":   {-2, pubsub},
}

// do runs a command.
func (s *Server) do(words []string) any {
	c, known := commands[strings.ToLower(words[0])]
	switch args := words[1:]; {
	case !known:
		return errUnknown
	case c.arity >= 0 && len(words) != c.arity, len(words) < -c.arity:
		return errArity
	case s.renewing && s.isCutOff(args):
		return errCutOff
	default:
		return c.run(s, args)
	}
}

// isCutOff reports whether a command of a renewal asks for a hold that is cut off. A hold that was lost in another way isn't:
// the renewal is to see that.
func (s *Server) isCutOff(args []string) bool {
	for h := range s.cutOff {
		if len(args) > 1 && args[0] == h.key && slices.Contains(args[1:], h.owner) && s.find(h.key).holds(h.owner) {
			return true
		}
	}
	return false
}

// holds reports whether an owner is in a hash or a sorted set.
func (e *entry) holds(owner string) bool {
	if e == nil {
		return false
	}
	switch v := e.value.(type) {
	case *hash:
		return v.index(owner) >= 0
	case *zset:
		return v.index(owner) >= 0
	}
	return false
}

// integer reads a whole number as strictly as Redis.
func integer(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

// sum adds up, unless that overflows.
func sum(a, b int64) (int64, bool) {
	c := a + b
	return c, (c > a) == (b > 0)
}

// float reads a number as C's strtod does, to the end of the string.
func float(s string) (float64, bool) {
	if strings.Contains(s, "_") { // Go's, not C's
		return 0, false
	}
	if hex := strings.ToLower(s); strings.Contains(hex, "0x") && !strings.Contains(hex, "p") {
		s += "p0" // Go's need it
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// floatText is how C prints a number with %.<digits>g.
func floatText(f float64, digits int) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f) && !math.Signbit(f):
		return "nan"
	case math.IsNaN(f):
		return "-nan"
	}
	return strconv.FormatFloat(f, 'g', digits, 64)
}

// span is the part of a list of n that start and stop mean; negative ones count from its end.
func span(start, stop int64, n int) (from, to int) {
	clamp := func(i int64) int64 {
		if i < 0 {
			i += int64(n)
		}
		return max(i, -1)
	}
	start, stop = max(clamp(start), 0), min(clamp(stop), int64(n)-1)
	if start > stop {
		return 0, 0
	}
	return int(start), int(stop) + 1
}

// list makes a reply of strings.
func list(words []string) []any {
	reply := make([]any, len(words))
	for i, w := range words {
		reply[i] = w
	}
	return reply
}
