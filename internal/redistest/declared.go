package redistest

import (
	"bufio"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2/proto"
)

// DeclaredOnly starts a proxy in front of a server (host:port), and returns its address. Behind it a script may access
// only the keys that its call declares, as on Dragonfly. The proxy ends with the test.
func DeclaredOnly(tb testing.TB, target string) (addr string) {
	tb.Helper()
	var sources sync.Map // the scripts that clients have sent, by digest
	return startProxy(tb, target, func(client io.Reader) io.Reader {
		return &guarded{in: bufio.NewReader(client), sources: &sources}
	}).Addr()
}

// guard is put before each script.
const guard = `local redis = setmetatable({}, {__index = redis})
do
  local real, declared, keyless = getmetatable(redis).__index, {}, {time = 1, publish = 1, spublish = 1, pubsub = 1}
  for _, key in ipairs(KEYS) do
    declared[key] = true
  end
  local function refused(command, ...)
    command = string.lower(command)
    local several = command == 'del' or command == 'unlink' or command == 'exists'
    for i, key in ipairs(keyless[command] and {} or {...}) do
      if (i == 1 or several) and not declared[key] then
        return {err = 'ERR script tried accessing undeclared key'}
      end
    end
  end
  redis.pcall = function(...)
    return refused(...) or real.pcall(...)
  end
  redis.call = function(...)
    local no = refused(...)
    if no then
      error(no)
    end
    return real.call(...)
  end
end
`

// guarded reads commands, and puts the guard before each script. It passes on unchanged an EVALSHA of a script that no
// client has sent with EVAL.
type guarded struct {
	in      *bufio.Reader
	sources *sync.Map
	rest    string // of the last command: what Read hasn't returned yet
}

func (g *guarded) Read(p []byte) (int, error) {
	if g.rest == "" {
		raw, err := proto.Read(g.in)
		if err != nil {
			return 0, err
		}
		args, err := proto.ReadStrings(raw)
		if err != nil || len(args) == 0 {
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		}
		g.rest = proto.Strings(g.guard(args)...)
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

func (g *guarded) guard(args []string) []string {
	switch strings.ToLower(args[0]) {
	case "eval":
		g.sources.Store(fmt.Sprintf("%x", sha1.Sum([]byte(args[1]))), args[1])
		args[1] = guard + args[1]
	case "evalsha":
		if source, ok := g.sources.Load(args[1]); ok {
			args[0], args[1] = "eval", guard+source.(string)
		}
	}
	return args
}
