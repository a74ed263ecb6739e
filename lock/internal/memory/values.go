package memory

import "time"

// entry is a key's value and its expiry.
type entry struct {
	value   any       // *text, *hash, *queue or *zset
	expires time.Time // zero: never
	kept    time.Duration
}

// expired reports whether the key is gone at a time.
func (e *entry) expired(now time.Time) bool {
	return !e.expires.IsZero() && !now.Before(e.expires)
}

// find returns a key's entry, nil if there is none any more. It is called with mu held, like all below it and every
// command.
func (s *Server) find(key string) *entry {
	e := s.keys[key]
	if e != nil && e.expired(s.now) {
		delete(s.keys, key)
		return nil
	}
	return e
}

// read returns a key's value, nil if there is none; or an error, if it is of another kind.
func read[T any](s *Server, key string) (*T, error) {
	e := s.find(key)
	if e == nil {
		return nil, nil //nolint:nilnil // a nil value answers like an empty one
	}
	v, ok := e.value.(*T)
	if !ok {
		return nil, errWrongType
	}
	return v, nil
}

// write is read for a value that is made where there is none.
func write[T any](s *Server, key string) (*T, error) {
	v, err := read[T](s, key)
	if v == nil && err == nil {
		v = new(T)
		s.keys[key] = &entry{value: v}
	}
	return v, err
}

// settle takes a key away if nothing is left in its value.
func (s *Server) settle(key string, left int) {
	if left == 0 {
		delete(s.keys, key)
	}
}
