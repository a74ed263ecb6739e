package memory

import (
	"slices"
	"strconv"
	"strings"
)

// hash has its fields in the order they were set, as a small one of Redis has.
type hash struct{ fields []field }

type field struct{ name, value string }

// index is where a field is, -1 for nowhere.
func (h *hash) index(name string) int {
	if h == nil {
		return -1
	}
	for i := range h.fields {
		if h.fields[i].name == name {
			return i
		}
	}
	return -1
}

// set reports whether the field is new.
func (h *hash) set(name, value string) bool {
	if i := h.index(name); i >= 0 {
		h.fields[i].value = value
		return false
	}
	h.fields = append(h.fields, field{name, value})
	return true
}

func (h *hash) all() []field {
	if h == nil {
		return nil
	}
	return h.fields
}

func hget(s *Server, args []string) any {
	h, err := read[hash](s, args[0])
	if err != nil {
		return err
	}
	if i := h.index(args[1]); i >= 0 {
		return h.fields[i].value
	}
	return nil
}

func hmget(s *Server, args []string) any {
	h, err := read[hash](s, args[0])
	if err != nil {
		return err
	}
	reply := make([]any, len(args)-1)
	for n, name := range args[1:] {
		if i := h.index(name); i >= 0 {
			reply[n] = h.fields[i].value
		}
	}
	return reply
}

func hset(s *Server, args []string) any {
	if len(args)%2 == 0 {
		return serverError("ERR wrong number of arguments for 'hset' command")
	}
	h, err := write[hash](s, args[0])
	if err != nil {
		return err
	}
	added := int64(0)
	for pair := range slices.Chunk(args[1:], 2) {
		if h.set(pair[0], pair[1]) {
			added++
		}
	}
	return added
}

func hgetall(s *Server, args []string) any {
	h, err := read[hash](s, args[0])
	if err != nil {
		return err
	}
	reply := make([]any, 0, 2*len(h.all()))
	for _, f := range h.all() {
		reply = append(reply, f.name, f.value)
	}
	return reply
}

func hkeys(s *Server, args []string) any {
	h, err := read[hash](s, args[0])
	if err != nil {
		return err
	}
	reply := make([]any, 0, len(h.all()))
	for _, f := range h.all() {
		reply = append(reply, f.name)
	}
	return reply
}

func hexists(s *Server, args []string) any {
	h, err := read[hash](s, args[0])
	switch {
	case err != nil:
		return err
	case h.index(args[1]) < 0:
		return int64(0)
	}
	return int64(1)
}

func hlen(s *Server, args []string) any {
	h, err := read[hash](s, args[0])
	if err != nil {
		return err
	}
	return int64(len(h.all()))
}

func hdel(s *Server, args []string) any {
	h, err := read[hash](s, args[0])
	if err != nil {
		return err
	}
	gone := int64(0)
	for _, name := range args[1:] {
		if i := h.index(name); i >= 0 {
			h.fields = slices.Delete(h.fields, i, i+1)
			gone++
		}
	}
	s.settle(args[0], len(h.all()))
	return gone
}

func hincrby(s *Server, args []string) any {
	by, ok := integer(args[2])
	if !ok {
		return errNotInteger
	}
	h, err := read[hash](s, args[0])
	if err != nil {
		return err
	}
	old := int64(0)
	if i := h.index(args[1]); i >= 0 {
		if old, ok = integer(h.fields[i].value); !ok {
			return serverError("ERR hash value is not an integer")
		}
	}
	n, ok := sum(old, by)
	if !ok {
		return errOverflow
	}
	if h == nil {
		h = &hash{}
		s.keys[args[0]] = &entry{value: h}
	}
	h.set(args[1], strconv.FormatInt(n, 10))
	return n
}

// hscan is HSCAN of a hash that is small enough to be given at once.
func hscan(s *Server, args []string) any {
	if _, ok := integer(args[1]); !ok {
		return serverError("ERR invalid cursor")
	}
	switch {
	case len(args) == 2:
	case len(args) != 4:
		return errSyntax
	case !strings.EqualFold(args[2], "count"):
		return missing("HSCAN", strings.ToUpper(args[2]))
	default:
		if n, ok := integer(args[3]); !ok {
			return errNotInteger
		} else if n < 1 {
			return errSyntax
		}
	}
	all := hgetall(s, args[:1])
	if err, ok := all.(serverError); ok {
		return err
	}
	return []any{"0", all}
}
