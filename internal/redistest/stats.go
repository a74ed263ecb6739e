package redistest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// do sends a command of this package.
func (s *Server) do(args ...any) *redis.Cmd {
	cmd := s.admin.Do(context.Background(), args...)
	if err := cmd.Err(); err != nil {
		cmd.SetErr(fmt.Errorf("redistest: %v, server %d: %w", args, s.port, err))
	} else if args[0] == "INFO" {
		s.infos.Add(1)
	}
	return cmd
}

// expect returns nil if the reply to a command has each text as often as is wanted.
func (s *Server) expect(want map[string]int, command ...any) error {
	reply, err := s.do(command...).Text()
	if err != nil {
		return err
	}
	for text, n := range want {
		if strings.Count(reply, text) != n {
			return fmt.Errorf("redistest: %v, server %d: want %d times %q in %s", command, s.port, n, text, reply)
		}
	}
	return nil
}

// Commands counts executed commands by lower-case name, those of scripts too. Redis counts each subcommand by itself,
// as "config|get"; a [Fake] counts it as "config".
type Commands map[string]int64

// Total returns the number of commands of all names.
func (c Commands) Total() int64 {
	var n int64
	for _, calls := range c {
		n += calls
	}
	return n
}

// Since returns what was executed since earlier, which must be of the same server without a restart in between. It
// omits names that weren't called.
func (c Commands) Since(earlier Commands) Commands {
	d := maps.Clone(c)
	for name, calls := range earlier {
		d[name] -= calls
	}
	maps.DeleteFunc(d, func(_ string, calls int64) bool { return calls == 0 })
	return d
}

// Commands returns what the server has executed since it started, without this package's INFO and CONFIG RESETSTAT.
// Other commands of this package are included, such as those of MoveSlot.
func (s *Server) Commands(tb testing.TB) Commands {
	tb.Helper()
	c := make(Commands)
	for field, stats := range s.Info(tb, "commandstats") {
		if name, ok := strings.CutPrefix(field, "cmdstat_"); ok {
			calls, err := strconv.ParseInt(valueOf("calls", stats), 10, 64)
			must(tb, err)
			c[name] = calls
		}
	}
	// The reply of this INFO doesn't count this INFO yet, but s.infos does.
	return c.Since(Commands{"info": s.infos.Load() - 1, "config|resetstat": 1})
}

// valueOf returns a value in a list "name=value,name=value...".
func valueOf(name, list string) string {
	_, rest, _ := strings.Cut(","+list, ","+name+"=")
	value, _, _ := strings.Cut(rest, ",")
	return value
}

// Info returns the fields of one section of INFO.
func (s *Server) Info(tb testing.TB, section string) map[string]string {
	tb.Helper()
	text, err := s.do("INFO", section).Text()
	must(tb, err)
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, field, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = field
		}
	}
	return fields
}
