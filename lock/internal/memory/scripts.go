package memory

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// metaField is the field in which a holder of ours says more of itself.
const metaField = "@lockdog"

// serverError is an error as Redis answers it.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (serverError) RedisError() {}

const errWrongType = serverError("WRONGTYPE Operation against a key holding the wrong kind of value")

// eval runs the Go twin of a script. Each does what its .lua file says, line by line; the replies and the errors
// are as go-redis gives them.
func (s *Server) eval(call backend.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.Renew && s.failing != nil {
		return nil, s.failing
	}
	args := make([]string, len(call.Args))
	for i, a := range call.Args {
		args[i] = fmt.Sprint(a)
	}
	var reply any
	var err error
	now := s.time()
	switch call.Script.Name {
	case "acquire":
		reply, err = s.acquire(now, call.Keys, args)
	case "renew":
		reply = s.renew(now, args)
	case "release":
		reply, err = s.release(now, call.Keys, args)
	case "force":
		reply, err = s.force(call.Keys[0], args)
	case "inspect":
		reply, err = s.inspect(now, call.Keys[0])
	default:
		err = serverError("ERR no such script in memory: " + call.Script.Name)
	}
	if err != nil {
		return nil, serverError(err.Error() + " script: " + call.Script.SHA + ", on @user_script:1.")
	}
	return reply, nil
}

func (s *Server) acquire(now int64, keys, args []string) (any, error) {
	owner, lease, notAfter, traceparent := args[0], number(args[1]), number(args[2]), args[3]
	e, err := s.hash(keys[0])
	if err != nil {
		return nil, err
	}
	holder, meta, ours := "", "", e == nil
	if e != nil {
		for _, f := range e.fields {
			switch {
			case f.name == metaField:
				meta = f.value
			case f.name == owner:
				ours = true
			case holder == "":
				holder = f.name
			}
		}
	}
	if !ours {
		return []any{int64(0), now, s.pttl(keys[0]), holder, meta}, nil
	}
	if late(now, notAfter) {
		return []any{int64(2), now}, nil
	}
	token := now
	if len(keys) > 1 {
		if token, err = s.token(now, keys[1]); err != nil {
			return nil, err
		}
	}
	s.grant(keys[0], owner, lease, token, traceparent)
	return []any{int64(1), now, token}, nil
}

func (s *Server) renew(now int64, args []string) any {
	notAfter := number(args[0])
	out := []any{now}
	for rest := args[1:]; len(rest) > 0; rest = rest[3:] {
		key, owner, lease := rest[0], rest[1], number(rest[2])
		e, err := s.hash(key)
		_, own := e.get(owner)
		_, cut := s.cutOff[hold{key, owner}]
		switch {
		case err != nil:
			out = append(out, err.Error())
		case own && cut:
			out = append(out, "ERR locktest: this lease can't be renewed any more")
		case !own && e != nil:
			out = append(out, int64(2))
		case !own:
			out = append(out, int64(0))
		case late(now, notAfter):
			out = append(out, int64(3))
		default:
			s.expire(key, lease)
			out = append(out, int64(1))
		}
	}
	return out
}

func (s *Server) release(now int64, keys, args []string) (any, error) {
	owner, channel := args[0], args[1]
	e, err := s.hash(keys[0])
	if err != nil {
		return nil, err
	}
	if _, own := e.get(owner); !own {
		taken := int64(0)
		if e != nil {
			taken = 1
		}
		return []any{int64(0), now, taken}, nil
	}
	delete(s.keys, keys[0])
	delete(s.cutOff, hold{keys[0], owner})

	if len(args) > 3 {
		next, lease, notAfter, traceparent, ours := args[3], number(args[4]), number(args[5]), args[6], number(args[8])
		if int64(len(s.subscribers[channel])) <= ours && !late(now, notAfter) {
			token, err := s.token(now, keys[1])
			if err != nil {
				return nil, err
			}
			s.grant(keys[0], next, lease, token, traceparent)
			return []any{int64(2), now, token}, nil
		}
	}
	s.publish(channel, "0")
	return []any{int64(1), now}, nil
}

func (s *Server) force(key string, args []string) (any, error) {
	channel, prefix := args[0], args[2]
	e, err := s.hash(key)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return int64(0), nil
	}
	delete(s.keys, key)
	s.publish(channel, "0")
	for _, f := range e.fields {
		if client := clientOf(f.name); client != "" {
			s.publish(prefix+client, f.name)
		}
	}
	return int64(1), nil
}

func (s *Server) inspect(now int64, key string) (any, error) {
	e, err := s.hash(key)
	if err != nil {
		return nil, err
	}
	out := []any{now, s.pttl(key)}
	if e != nil {
		for _, f := range e.fields {
			out = append(out, f.name, f.value)
		}
	}
	return out, nil
}

// token draws the next one from a counter.
func (s *Server) token(now int64, counter string) (int64, error) {
	e := s.find(counter)
	if e == nil {
		e = &entry{}
		s.keys[counter] = e
	}
	if e.fields != nil {
		return 0, errWrongType
	}
	token := now
	if e.text != "" {
		last, err := strconv.ParseInt(e.text, 10, 64)
		if err != nil {
			return 0, serverError("ERR user_script: attempt to compare nil with number")
		}
		token = max(token, last+1)
	}
	e.text = strconv.FormatInt(token, 10)
	return token, nil
}

// grant writes an owner's hold.
func (s *Server) grant(key, owner string, lease, token int64, traceparent string) {
	meta := strconv.FormatInt(token, 10)
	if traceparent != "" {
		meta += " " + traceparent
	}
	s.set(key, owner, "1")
	s.set(key, metaField, meta)
	s.expire(key, lease)
}

func late(now, notAfter int64) bool { return notAfter > 0 && now > notAfter }

// clientOf is the client of an owner, "" if that isn't a client of ours.
func clientOf(owner string) string {
	i := strings.LastIndexByte(owner, '-')
	if i <= 0 || i == len(owner)-1 || strings.Trim(owner[i+1:], "0123456789") != "" {
		return ""
	}
	return owner[:i]
}

// number reads an argument that package lock formatted.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
