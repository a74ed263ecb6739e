package pin_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/peers/internal/pin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allowed is the list of CPUs in a status file of /proc.
func allowed(t *testing.T, status string) string {
	t.Helper()
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(list)
		}
	}
	t.Fatal("no Cpus_allowed_list")
	return ""
}

func ofAllThreads(t *testing.T) map[string]bool {
	t.Helper()
	lists := make(map[string]bool)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		lists[allowed(t, string(status))] = true
	}
	return lists
}

// Every thread, and a child, has one CPU; then what there was before.
func TestOne(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Log("one CPU: nothing can be seen here")
	}
	before := ofAllThreads(t)
	undo, err := pin.One()
	if err != nil {
		t.Fatal(err)
	}
	pinned := ofAllThreads(t)
	if len(pinned) != 1 {
		t.Errorf("threads on %v", pinned)
	}
	status, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	child := allowed(t, string(status))
	if strings.ContainsAny(child, ",-") || !pinned[child] {
		t.Errorf("a child has the CPUs %s", child)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	after := ofAllThreads(t)
	for list := range before {
		if !after[list] || len(after) != 1 {
			t.Errorf("after it: %v, before: %v", after, before)
		}
	}
}
