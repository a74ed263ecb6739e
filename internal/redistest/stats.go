package redistest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
)

// adminContext returns a ctx for commands that this package itself sends. It ends after patience.
func adminContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// Commands counts executed commands by lower-case name, those of scripts too. Redis 7 and newer count each subcommand
// by itself, as "config|get"; older servers and a [Fake] count it as "config".
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
	info := s.Info(tb, "commandstats")
	c := make(Commands, len(info))
	for field, stats := range info {
		name, ok := strings.CutPrefix(field, "cmdstat_")
		if !ok {
			continue
		}
		calls, err := callsOf(stats)
		if err != nil {
			tb.Fatalf("redistest: INFO commandstats of %s: %v", name, err)
		}
		c[name] = calls
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, calls := range s.own {
		c[name] -= calls
	}
	// The reply of this INFO doesn't count this INFO yet, but s.own does.
	c["info"]++
	maps.DeleteFunc(c, func(_ string, calls int64) bool { return calls == 0 })
	return c
}

func callsOf(stats string) (int64, error) {
	for stat := range strings.SplitSeq(stats, ",") {
		if n, ok := strings.CutPrefix(stat, "calls="); ok {
			return strconv.ParseInt(n, 10, 64)
		}
	}
	return 0, fmt.Errorf("no calls= in %q", stats)
}

// Info returns the fields of one section of INFO.
func (s *Server) Info(tb testing.TB, section string) map[string]string {
	tb.Helper()
	ctx, cancel := adminContext()
	defer cancel()
	fields, err := s.info(ctx, section)
	if err != nil {
		tb.Fatalf("redistest: INFO %s of server %d: %v", section, s.port, err)
	}
	return fields
}

func (s *Server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	s.sent("info")
	return infoFields(text), nil
}

func infoFields(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, field, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = field
		}
	}
	return fields
}

func (s *Server) sent(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[name]++
}

// resetStats makes Commands forget the commands of the start.
func (s *Server) resetStats() error {
	ctx, cancel := adminContext()
	defer cancel()
	if err := s.admin.ConfigResetStat(ctx).Err(); err != nil {
		return fmt.Errorf("redistest: reset the counts of server %d: %w", s.port, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = map[string]int64{"config|resetstat": 1}
	return nil
}
