package memory

import (
	"math"
	"slices"
	"strings"
)

// zrange is ZRANGE by index.
func zrange(s *Server, args []string) any {
	withScores := false
	for _, option := range args[3:] {
		switch o := strings.ToLower(option); o {
		case "withscores":
			withScores = true
		case "byscore", "bylex", "rev", "limit":
			return missing("ZRANGE", strings.ToUpper(o))
		default:
			return errSyntax
		}
	}
	start, ok1 := integer(args[1])
	stop, ok2 := integer(args[2])
	if !ok1 || !ok2 {
		return errNotInteger
	}
	z, err := read[zset](s, args[0])
	if err != nil {
		return err
	}
	from, to := span(start, stop, len(z.all()))
	return memberList(z.all()[from:to], withScores)
}

func zrangebyscore(s *Server, args []string) any {
	withScores, offset, count := false, int64(0), int64(-1)
	for rest := args[3:]; len(rest) > 0; {
		switch strings.ToLower(rest[0]) {
		case "withscores":
			withScores, rest = true, rest[1:]
		case "limit":
			if len(rest) < 3 {
				return errSyntax
			}
			var ok1, ok2 bool
			offset, ok1 = integer(rest[1])
			count, ok2 = integer(rest[2])
			if !ok1 || !ok2 {
				return errNotInteger
			}
			rest = rest[3:]
		default:
			return errSyntax
		}
	}
	z, from, to, err := between(s, args)
	if err != nil {
		return err
	}
	found := z.all()[from:to]
	n := int64(len(found))
	if offset < 0 || offset > n {
		offset = n
	}
	if count < 0 || count > n-offset {
		count = n - offset
	}
	return memberList(found[offset:offset+count], withScores)
}

func zcount(s *Server, args []string) any {
	_, from, to, err := between(s, args)
	if err != nil {
		return err
	}
	return int64(to - from)
}

func zremrangebyscore(s *Server, args []string) any {
	z, from, to, err := between(s, args)
	switch {
	case err != nil:
		return err
	case z == nil:
		return int64(0)
	}
	z.members = slices.Delete(z.members, from, to)
	s.settle(args[0], len(z.members))
	return int64(to - from)
}

// between returns a set, and which of its members have scores from args[1] to args[2].
func between(s *Server, args []string) (z *zset, from, to int, err error) {
	low, lowOpen, ok1 := bound(args[1])
	high, highOpen, ok2 := bound(args[2])
	if !ok1 || !ok2 {
		return nil, 0, 0, serverError("ERR min or max is not a float")
	}
	if z, err = read[zset](s, args[0]); err != nil {
		return nil, 0, 0, err
	}
	all := z.all()
	to = len(all)
	for from < to && (all[from].score < low || lowOpen && all[from].score == low) {
		from++
	}
	for from < to && (all[to-1].score > high || highOpen && all[to-1].score == high) {
		to--
	}
	return z, from, to, nil
}

// bound reads the end of a range: a score, which with a parenthesis before it isn't in the range.
func bound(s string) (f float64, open, ok bool) {
	s, open = strings.CutPrefix(s, "(")
	f, ok = float(s)
	return f, open, ok && !math.IsNaN(f)
}

func memberList(members []member, withScores bool) []any {
	reply := make([]any, 0, 2*len(members))
	for _, m := range members {
		reply = append(reply, m.name)
		if withScores {
			reply = append(reply, scoreText(m.score))
		}
	}
	return reply
}
