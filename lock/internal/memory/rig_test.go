package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

// sides are a real Redis and the memory, which are told the same.
type sides struct {
	t      *testing.T
	redis  backend.Backend
	memory backend.Backend
	prefix string // of the keys that names in commands stand for
	cases  int
	log    []string
}

func newSides(t *testing.T) *sides {
	t.Helper()
	space := redistest.Shared(t)
	b, err := backend.NewRedis(space.Client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &sides{t: t, redis: b, memory: memory.New().Backend(), prefix: space.Prefix()}
}

// fresh has what follows use keys that nothing used yet.
func (s *sides) fresh() {
	s.cases++
	s.log = nil
}

// key is what $name stands for.
func (s *sides) key(name string) string { return fmt.Sprintf("%s%d:%s", s.prefix, s.cases, name) }

// eval runs a script.
func eval(b backend.Backend, source string, keys []string, args ...any) (any, error) {
	call := backend.Call{Script: backend.NewScript("test", source), SendSource: true, Keys: keys, Args: args}
	return b.Eval(context.Background(), call)
}

// word words a reply and an error, in full.
func word(reply any, err error) string {
	var answer redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return "redis.Nil"
	case errors.As(err, &answer):
		return "answer: " + err.Error()
	case err != nil:
		return "error: " + err.Error()
	}
	return wordValue(reply)
}

func wordValue(v any) string {
	switch v := v.(type) {
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = wordValue(v[i])
		}
		return "{" + strings.Join(words, ", ") + "}"
	case error:
		return "an error: " + v.Error()
	}
	return fmt.Sprintf("%#v", v)
}

// both runs a script on both sides, which must answer the same. plain takes out of an answer what may differ.
func (s *sides) both(what, source string, keys []string, plain func(string) string, args ...any) {
	s.t.Helper()
	want := plain(word(eval(s.redis, source, keys, args...)))
	got := plain(word(eval(s.memory, source, keys, args...)))
	s.log = append(s.log, what+"  ->  "+want)
	if got != want {
		s.t.Errorf("Redis answers %s\nmemory answers %s\nafter\n%s", want, got, strings.Join(s.log, "\n"))
	}
}

func exactly(answer string) string { return answer }

// command is a script that runs one command, and says of what type the answer is in Lua.
const command = `
local reply = redis.pcall(unpack(ARGV))
if type(reply) == 'table' and reply.ok then return {'status', reply} end
if type(reply) == 'table' and reply.err then return {'error', reply} end
return {type(reply), reply}`

// look is a script that says all that there is of its keys.
const look = `
local all = {}
for i, key in ipairs(KEYS) do
  all[i] = {redis.pcall('get', key), redis.pcall('hgetall', key), redis.pcall('lrange', key, 0, -1),
    redis.pcall('zrange', key, 0, -1, 'withscores'), redis.call('exists', key)}
end
return all`

// do gives both sides a command: words apart by spaces, $name for a key, ” for an empty word.
func (s *sides) do(line string) {
	s.t.Helper()
	words := strings.Fields(line)
	args := make([]any, len(words))
	for i, w := range words {
		switch name, isKey := strings.CutPrefix(w, "$"); {
		case isKey:
			w = s.key(name)
		case w == "''":
			w = ""
		}
		args[i] = w
	}
	plain := exactly
	if strings.EqualFold(words[0], "pttl") {
		plain = roughly
	}
	s.both(line, command, nil, plain, args...)
}

// roughly takes the last ten seconds out of a PTTL.
func roughly(answer string) string {
	var ms int64
	if n, _ := fmt.Sscanf(answer, `{"number", %d}`, &ms); n == 1 && ms > 0 {
		return fmt.Sprintf("%d0 s", (ms+9_999)/10_000)
	}
	return answer
}

// look compares what keys hold.
func (s *sides) look(names ...string) {
	s.t.Helper()
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.key(name)
	}
	s.both("look", look, keys, exactly)
}
