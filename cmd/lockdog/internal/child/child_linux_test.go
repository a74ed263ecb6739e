package child

import (
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Close kills what is left before it gives up: where there is hardly any CPU, neither the guard nor what follows its end may have come to that, and nobody will later.
// What was there before goes on, and so does what a command that ended by itself has left behind. Not parallel: it is about all children of this process.
func TestClose_KillsBeforeItGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		child *Child
		want  syscall.Signal // what ends what is left
	}{
		"after End":          {&Child{ending: true, killAt: time.Now()}, syscall.SIGKILL},
		"its guard was dead": {&Child{orphaned: true}, syscall.SIGKILL},
		"it ended by itself": {&Child{}, syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, guard, left := start(t), start(t), start(t)
				c := test.child
				c.guard, c.others, c.gone = guard, map[int]bool{before.Process.Pid: true}, make(chan struct{})
				if c.Close() {
					t.Error("it says that nothing is left")
				}
				_ = guard.Process.Kill()
				_ = guard.Wait()
				if by := endedBy(t, left); by != test.want {
					t.Errorf("what is left was ended by %v, want %v", by, test.want)
				}
				if by := endedBy(t, before); by != syscall.SIGTERM {
					t.Errorf("what was there before was ended by %v", by)
				}
			})
		})
	}
}

func start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// endedBy says which signal has ended it: SIGTERM if none had before.
func endedBy(t *testing.T, cmd *exec.Cmd) syscall.Signal {
	t.Helper()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait() // the error is the signal
	return cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
}
