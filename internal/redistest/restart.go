package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Data says what a restarted server starts with.
type Data bool

// What [Server.Restart] does with the data.
const (
	LoseData Data = false // an empty server, as after a crash without persistence
	KeepData Data = true  // the data as it was: saved first if the server runs, otherwise what was last persisted
)

// Restart ends the process as a crash would, and starts it again on the same port with the same configuration. A
// Cluster node or Sentinel keeps its identity in both cases.
func (s *Server) Restart(tb testing.TB, data Data) {
	tb.Helper()
	if err := s.restart(data); err != nil {
		tb.Fatal(err)
	}
}

// RestartAs is Restart with more options, such as another version of the server.
func (s *Server) RestartAs(tb testing.TB, data Data, opts ...Option) {
	tb.Helper()
	cfg := s.cfg
	s.cfg = cfg.with(opts...)
	if err := os.WriteFile(s.confPath(), []byte(s.cfg.text(s.port, s.dir)), 0o600); err != nil {
		tb.Fatalf("redistest: redis.conf: %v", err)
	}
	s.Restart(tb, data)
}

func (s *Server) restart(data Data) error {
	if data == KeepData && !s.cfg.sentinel && !s.process().Ended() {
		ctx, cancel := adminContext()
		defer cancel()
		if err := s.admin.Save(ctx).Err(); err != nil {
			return fmt.Errorf("redistest: save before restart: %w", err)
		}
	}
	if err := s.process().Kill(); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	if data == LoseData {
		err := errors.Join(
			os.RemoveAll(filepath.Join(s.dir, "dump.rdb")),
			os.RemoveAll(filepath.Join(s.dir, "appendonlydir")),
		)
		if err != nil {
			return fmt.Errorf("redistest: forget data: %w", err)
		}
	}
	// Remove the log: otherwise a failed start would be explained with the log of an earlier start.
	if err := os.RemoveAll(filepath.Join(s.dir, logName)); err != nil {
		return fmt.Errorf("redistest: remove log: %w", err)
	}
	bin, err := s.cfg.binary()
	if err != nil {
		return err
	}
	return s.launch(bin)
}
