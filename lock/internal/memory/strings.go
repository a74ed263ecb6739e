package memory

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// text is a string.
type text struct{ s string }

func get(s *Server, args []string) any {
	t, err := read[text](s, args[0])
	switch {
	case err != nil:
		return err
	case t == nil:
		return nil
	}
	return t.s
}

// set is SET with NX, XX, PX and GET.
func set(s *Server, args []string) any {
	var nx, xx, px, keep, old bool
	var lease string
	for i := 2; i < len(args); i++ {
		switch option := strings.ToLower(args[i]); {
		case option == "nx" && !xx:
			nx = true
		case option == "xx" && !nx:
			xx = true
		case option == "keepttl" && !px:
			keep = true
		case option == "px" && !keep && i+1 < len(args):
			i++
			px, lease = true, args[i]
		case option == "get":
			old = true
		case slices.Contains([]string{"ex", "exat", "pxat"}, option):
			return missing("SET", strings.ToUpper(option))
		default:
			return errSyntax
		}
	}
	ms, ok := integer(lease)
	switch {
	case px && !ok:
		return errNotInteger
	case px && (ms <= 0 || ms > math.MaxInt64-s.now.UnixMilli()):
		return serverError("ERR invalid expire time in 'set' command")
	}
	var done, refused any = status("OK"), nil
	if old {
		done = get(s, args)
		refused = done
		if err, wrong := done.(error); wrong {
			return err
		}
	}
	before := s.find(args[0])
	if nx && before != nil || xx && before == nil {
		return refused
	}
	e := &entry{value: &text{args[1]}}
	if px {
		e.expires = s.now.Add(millis(ms))
	} else if keep && before != nil {
		e.expires = before.expires
	}
	s.keys[args[0]] = e
	return done
}

func incr(s *Server, args []string) any { return increase(s, args[0], 1) }
func decr(s *Server, args []string) any { return increase(s, args[0], -1) }

func incrby(s *Server, args []string) any {
	by, ok := integer(args[1])
	if !ok {
		return errNotInteger
	}
	return increase(s, args[0], by)
}

func decrby(s *Server, args []string) any {
	by, ok := integer(args[1])
	switch {
	case !ok:
		return errNotInteger
	case by == math.MinInt64:
		return serverError("ERR decrement would overflow")
	}
	return increase(s, args[0], -by)
}

func increase(s *Server, key string, by int64) any {
	t, err := read[text](s, key)
	if err != nil {
		return err
	}
	old, ok := int64(0), true
	if t != nil {
		old, ok = integer(t.s)
	}
	if !ok {
		return errNotInteger
	}
	n, ok := sum(old, by)
	if !ok {
		return errOverflow
	}
	if t == nil {
		t = &text{}
		s.keys[key] = &entry{value: t}
	}
	t.s = strconv.FormatInt(n, 10)
	return n
}
