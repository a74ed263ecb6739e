package redistest

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// DeclaredOnly starts a proxy in front of a server (host:port), and returns its address. Behind it a script may access
// only the keys that its call declares, as on Dragonfly. It ends with the test.
func DeclaredOnly(tb testing.TB, target string) (addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &declaredOnly{target: target, sources: make(map[string]string)}
	tb.Cleanup(func() {
		_ = l.Close()
		s.close()
		s.running.Wait()
	})
	s.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() { s.serve(conn) })
		}
	})
	return l.Addr().String()
}

type declaredOnly struct {
	target  string
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	conns   []net.Conn
	sources map[string]string // by digest
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

func (s *declaredOnly) serve(client net.Conn) {
	server, err := net.Dial("tcp", s.target)
	if err != nil {
		closeHard(client.(*net.TCPConn))
		return
	}
	if !s.add(client, server) {
		return
	}
	defer func() { _, _ = client.Close(), server.Close() }()
	s.running.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	for in := bufio.NewReader(client); ; {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		if _, err := server.Write(writeCommand(s.guarded(args))); err != nil {
			return
		}
	}
}

// guarded puts the guard before a script. It passes on unchanged an EVALSHA of a script that no client has sent with
// EVAL.
func (s *declaredOnly) guarded(args []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch strings.ToLower(args[0]) {
	case "eval":
		sum := sha1.Sum([]byte(args[1]))
		s.sources[hex.EncodeToString(sum[:])] = args[1]
		args[1] = guard + args[1]
	case "evalsha":
		if source, ok := s.sources[args[1]]; ok {
			args[0], args[1] = "eval", guard+source
		}
	}
	return args
}

func (s *declaredOnly) add(conns ...net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conns...)
	if s.closed {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	return !s.closed
}

func (s *declaredOnly) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// readCommand reads an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	number := func(mark byte) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != mark {
			return 0, fmt.Errorf("%q isn't a command of a client", line)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	args := make([]string, max(n, 0))
	for i := range args {
		size, err := number('$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	if err == nil && n < 1 {
		err = io.ErrUnexpectedEOF
	}
	return args, err
}

func writeCommand(args []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.Bytes()
}
