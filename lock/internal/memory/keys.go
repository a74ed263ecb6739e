package memory

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// timeOfDay is TIME. A bubble's clock stands still between two calls; no Redis's does, and tokens rise by that.
func timeOfDay(s *Server, _ []string) any {
	s.clock = max(s.clock+1, time.Now().UnixMicro())
	return []any{strconv.FormatInt(s.clock/1e6, 10), strconv.FormatInt(s.clock%1e6, 10)}
}

func exists(s *Server, keys []string) any {
	n := int64(0)
	for _, key := range keys {
		if s.find(key) != nil {
			n++
		}
	}
	return n
}

func del(s *Server, keys []string) any {
	n := int64(0)
	for _, key := range keys {
		if s.find(key) != nil {
			delete(s.keys, key)
			n++
		}
	}
	return n
}

func pexpire(s *Server, args []string) any   { return expire(s, "pexpire", args, s.now) }
func pexpireat(s *Server, args []string) any { return expire(s, "pexpireat", args, time.UnixMilli(0)) }

// millis is a Duration of so many milliseconds. More than 278 years, for which it has no room, are as good as those.
func millis(ms int64) time.Duration {
	const most = 1 << 43
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// expire is PEXPIRE and PEXPIREAT: milliseconds counted from some time.
func expire(s *Server, name string, args []string, from time.Time) any {
	flags := make(map[string]bool)
	for _, option := range args[2:] {
		o := strings.ToLower(option)
		switch o {
		case "nx", "xx", "gt", "lt":
			flags[o] = true
		default:
			return serverError("ERR Unsupported option " + option)
		}
	}
	switch {
	case flags["nx"] && len(flags) > 1:
		return serverError("ERR NX and XX, GT or LT options at the same time are not compatible")
	case flags["gt"] && flags["lt"]:
		return serverError("ERR GT and LT options at the same time are not compatible")
	}
	ms, ok := integer(args[1])
	if !ok {
		return errNotInteger
	}
	if ms > math.MaxInt64-from.UnixMilli() {
		return serverError("ERR invalid expire time in '" + name + "' command")
	}
	e := s.find(args[0])
	if e == nil {
		return int64(0)
	}
	at, until := from.Add(millis(ms)), e.expires
	if e.kept > 0 {
		until = s.now.Add(e.kept)
	}
	never := until.IsZero()
	switch {
	case flags["nx"] && !never, flags["xx"] && never, flags["gt"] && (never || !at.After(until)), flags["lt"] && !never && !at.Before(until):
		return int64(0)
	case e.kept > 0: // somebody renews it all the time
	default:
		e.expires = at // and is gone at once, if that is past
	}
	return int64(1)
}

func pttl(s *Server, args []string) any {
	e := s.find(args[0])
	switch {
	case e == nil:
		return int64(-2)
	case e.kept > 0:
		return e.kept.Milliseconds()
	case e.expires.IsZero():
		return int64(-1)
	}
	return e.expires.Sub(s.now).Milliseconds()
}

func persist(s *Server, args []string) any {
	e := s.find(args[0])
	if e == nil || e.expires.IsZero() {
		return int64(0)
	}
	e.expires = time.Time{}
	return int64(1)
}
