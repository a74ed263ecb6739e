//go:build chaos

package chaos_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// clock is the wall clocks of servers that are told them by testdata/clock.c.
type clock struct {
	library string
	files   map[*redistest.Server]string
}

func newClock(t *testing.T) *clock {
	t.Helper()
	c := &clock{filepath.Join(t.TempDir(), "clock.so"), make(map[*redistest.Server]string)}
	cc := "cc"
	if set := os.Getenv("CC"); set != "" {
		cc = set
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", c.library, filepath.Join("testdata", "clock.c")).CombinedOutput(); err != nil {
		t.Fatalf("a C compiler is needed, for servers whose clocks can be stepped (make setup installs one): %v\n%s", err, out)
	}
	return c
}

func (c *clock) env() string { return "LD_PRELOAD=" + c.library }

// find looks for the files of a rig's servers: each makes its own when it starts.
func (c *clock) find(t *testing.T, r *rig) {
	t.Helper()
	for _, s := range r.servers {
		dir, err := r.admin(s).ConfigGet(t.Context(), "dir").Result()
		if err != nil {
			t.Fatal(err)
		}
		c.files[s] = filepath.Join(dir["dir"], "clock")
		if _, err := os.Stat(c.files[s]); err != nil {
			t.Fatalf("the server %s has no clock of its own: %v", s.Addr(), err)
		}
		c.set(t, s, 0)
	}
}

// set puts a server's clock ahead of the real one. The file is mapped by the server: it is written in place.
func (c *clock) set(t *testing.T, s *redistest.Server, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.files[s], os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Microseconds())), 0)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
