//go:build chaos

package chaos_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// clock is the wall clock of a server that is told it by testdata/clock.c.
type clock struct{ library, file string }

func newClock(t *testing.T) *clock {
	t.Helper()
	dir := t.TempDir()
	c := &clock{filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")}
	cc := "cc"
	if set := os.Getenv("CC"); set != "" {
		cc = set
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", c.library, filepath.Join("testdata", "clock.c")).CombinedOutput(); err != nil {
		t.Fatalf("a C compiler is needed, for a server whose clock can be stepped (make setup installs one): %v\n%s", err, out)
	}
	c.set(t, 0)
	return c
}

func (c *clock) env() []string { return []string{"LD_PRELOAD=" + c.library, "CHAOS_CLOCK=" + c.file} }

// set puts the clock ahead of the real one. The file is mapped by the server: it is written in place.
func (c *clock) set(t *testing.T, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
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
