package memory

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// zset is a sorted set: by score, then by name.
type zset struct{ members []member }

type member struct {
	name  string
	score float64
}

func (z *zset) index(name string) int {
	if z == nil {
		return -1
	}
	return slices.IndexFunc(z.members, func(m member) bool { return m.name == name })
}

func (z *zset) set(name string, score float64) {
	if i := z.index(name); i >= 0 {
		z.members = slices.Delete(z.members, i, i+1)
	}
	m := member{name, score + 0} // no -0
	at, _ := slices.BinarySearchFunc(z.members, m, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name))
	})
	z.members = slices.Insert(z.members, at, m)
}

func (z *zset) all() []member {
	if z == nil {
		return nil
	}
	return z.members
}

func scoreText(score float64) string { return floatText(score, 17) }

// score reads one, which may be infinite, but a number it must be.
func score(s string) (float64, bool) {
	f, ok := float(s)
	return f, ok && !math.IsNaN(f)
}

// zadd is ZADD with NX, XX, GT, LT and CH.
func zadd(s *Server, args []string) any {
	flags := make(map[string]bool)
	rest := args[1:]
options:
	for ; len(rest) > 0; rest = rest[1:] {
		switch o := strings.ToLower(rest[0]); o {
		case "nx", "xx", "gt", "lt", "ch":
			flags[o] = true
		case "incr":
			return missing("ZADD", "INCR")
		default:
			break options
		}
	}
	nx, xx, gt, lt := flags["nx"], flags["xx"], flags["gt"], flags["lt"]
	switch {
	case len(rest) == 0 || len(rest)%2 != 0:
		return errSyntax
	case nx && xx:
		return serverError("ERR XX and NX options at the same time are not compatible")
	case nx && gt, nx && lt, gt && lt:
		return serverError("ERR GT, LT, and/or NX options at the same time are not compatible")
	}
	var members []member
	for pair := range slices.Chunk(rest, 2) {
		f, ok := score(pair[0])
		if !ok {
			return errNotFloat
		}
		members = append(members, member{pair[1], f})
	}
	z, err := read[zset](s, args[0])
	if z == nil && err == nil && !xx {
		z, err = write[zset](s, args[0])
	}
	if err != nil {
		return err
	}
	added, changed := int64(0), int64(0)
	for _, m := range members {
		i := z.index(m.name)
		switch {
		case i < 0 && !xx:
			z.set(m.name, m.score)
			added++
		case i < 0 || nx || m.score == z.members[i].score:
		case gt && m.score < z.members[i].score, lt && m.score > z.members[i].score:
		default:
			z.set(m.name, m.score)
			changed++
		}
	}
	if flags["ch"] {
		return added + changed
	}
	return added
}

func zincrby(s *Server, args []string) any {
	by, ok := score(args[1])
	if !ok {
		return errNotFloat
	}
	z, err := read[zset](s, args[0])
	if err != nil {
		return err
	}
	if i := z.index(args[2]); i >= 0 {
		by += z.members[i].score
	}
	if math.IsNaN(by) {
		return serverError("ERR resulting score is not a number (NaN)")
	}
	if z, err = write[zset](s, args[0]); err != nil {
		return err
	}
	z.set(args[2], by)
	return scoreText(by)
}

func zrem(s *Server, args []string) any {
	z, err := read[zset](s, args[0])
	if err != nil {
		return err
	}
	gone := int64(0)
	for _, name := range args[1:] {
		if i := z.index(name); i >= 0 {
			z.members = slices.Delete(z.members, i, i+1)
			gone++
		}
	}
	s.settle(args[0], len(z.all()))
	return gone
}

func zpopmin(s *Server, args []string) any {
	if len(args) > 1 {
		return missing("ZPOPMIN", "a count")
	}
	z, err := read[zset](s, args[0])
	switch {
	case err != nil:
		return err
	case z == nil:
		return []any{}
	}
	reply := memberList(z.members[:1], true)
	z.members = z.members[1:]
	s.settle(args[0], len(z.members))
	return reply
}

func zscore(s *Server, args []string) any {
	z, err := read[zset](s, args[0])
	if err != nil {
		return err
	}
	if i := z.index(args[1]); i >= 0 {
		return scoreText(z.members[i].score)
	}
	return nil
}

func zcard(s *Server, args []string) any {
	z, err := read[zset](s, args[0])
	if err != nil {
		return err
	}
	return int64(len(z.all()))
}
