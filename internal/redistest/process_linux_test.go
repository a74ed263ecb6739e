package redistest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

// A test binary that is killed runs no cleanup; its servers must end all the
// same.
func TestServerDiesWithTestBinary(t *testing.T) {
	const inChild = "REDISTEST_CHILD"
	if os.Getenv(inChild) != "" {
		fmt.Printf("pid %d\n", redistest.Start(t).PID())
		select {} // until killed
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	// It leaves its files behind, too.
	child.Env = append(os.Environ(), inChild+"=1", "TMPDIR="+t.TempDir())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	server := 0
	for lines := bufio.NewScanner(out); server == 0 && lines.Scan(); {
		if pid, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			if server, err = strconv.Atoi(pid); err != nil {
				t.Error(err)
				break
			}
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait() // says that it was killed
	if server == 0 {
		t.Fatal("the child started no server")
	}
	// Its end may come a moment after its parent's. Init, whose child it is
	// now, may leave it as a zombie, which has no command line.
	err = redistest.Poll(func() error {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", server))
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH), err == nil && len(cmdline) == 0:
			return nil
		case err != nil:
			return err
		default:
			return fmt.Errorf("server %d still runs: %s", server, cmdline)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
