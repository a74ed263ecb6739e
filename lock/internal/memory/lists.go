package memory

import (
	"slices"
	"strings"
)

// queue is a list.
type queue struct{ items []string }

func (q *queue) all() []string {
	if q == nil {
		return nil
	}
	return q.items
}

func lindex(s *Server, args []string) any {
	q, err := read[queue](s, args[0])
	switch {
	case err != nil:
		return err
	case q == nil:
		return nil
	}
	i, ok := integer(args[1])
	if !ok {
		return errNotInteger
	}
	if i < 0 {
		i += int64(len(q.items))
	}
	if i < 0 || i >= int64(len(q.items)) {
		return nil
	}
	return q.items[i]
}

func llen(s *Server, args []string) any {
	q, err := read[queue](s, args[0])
	if err != nil {
		return err
	}
	return int64(len(q.all()))
}

func lpush(s *Server, args []string) any {
	q, err := write[queue](s, args[0])
	if err != nil {
		return err
	}
	for _, item := range args[1:] {
		q.items = slices.Insert(q.items, 0, item)
	}
	return int64(len(q.items))
}

func rpush(s *Server, args []string) any {
	q, err := write[queue](s, args[0])
	if err != nil {
		return err
	}
	q.items = append(q.items, args[1:]...)
	return int64(len(q.items))
}

// lpop answers one item; with a count, a list of them.
func lpop(s *Server, args []string) any {
	if len(args) > 2 {
		return serverError("ERR wrong number of arguments for 'lpop' command")
	}
	n := int64(1)
	if len(args) == 2 {
		var ok bool
		if n, ok = integer(args[1]); !ok || n < 0 {
			return serverError("ERR value is out of range, must be positive")
		}
	}
	q, err := read[queue](s, args[0])
	switch {
	case err != nil:
		return err
	case q == nil:
		return nil
	}
	n = min(n, int64(len(q.items)))
	first := list(q.items[:n])
	q.items = slices.Delete(q.items, 0, int(n))
	s.settle(args[0], len(q.items))
	if len(args) == 1 {
		return first[0]
	}
	return first
}

func lrange(s *Server, args []string) any {
	start, ok1 := integer(args[1])
	stop, ok2 := integer(args[2])
	if !ok1 || !ok2 {
		return errNotInteger
	}
	q, err := read[queue](s, args[0])
	if err != nil {
		return err
	}
	from, to := span(start, stop, len(q.all()))
	return list(q.all()[from:to])
}

// lrem takes up to count items away: the first ones, or with a negative count the last ones; with 0 all.
func lrem(s *Server, args []string) any {
	count, ok := integer(args[1])
	if !ok {
		return errNotInteger
	}
	q, err := read[queue](s, args[0])
	switch {
	case err != nil:
		return err
	case q == nil:
		return int64(0)
	}
	gone := int64(0)
	remove := func(item string) bool {
		if item != args[2] || count != 0 && gone == max(count, -count) {
			return false
		}
		gone++
		return true
	}
	if count < 0 {
		slices.Reverse(q.items)
	}
	q.items = slices.DeleteFunc(q.items, remove)
	if count < 0 {
		slices.Reverse(q.items)
	}
	s.settle(args[0], len(q.items))
	return gone
}

func lpos(s *Server, args []string) any {
	if len(args) > 2 {
		option := strings.ToUpper(args[2])
		if slices.Contains([]string{"RANK", "COUNT", "MAXLEN"}, option) {
			return missing("LPOS", option)
		}
		return errSyntax
	}
	q, err := read[queue](s, args[0])
	if err != nil {
		return err
	}
	if i := slices.Index(q.all(), args[1]); i >= 0 {
		return int64(i)
	}
	return nil
}
