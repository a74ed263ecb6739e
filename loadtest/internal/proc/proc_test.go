package proc_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKillOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	p, err := proc.Start(exec.Command("sleep", "60"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Ended() || p.PID() == 0 {
		t.Error("it doesn't run")
	}
	if group, err := syscall.Getpgid(p.PID()); err != nil || group != p.PID() {
		t.Errorf("process group %d of %d: Ctrl-C would reach it; %v", group, p.PID(), err)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	if err := p.Wait(time.Millisecond); err == nil || !p.Ended() {
		t.Errorf("Wait: %v, ended: %v", err, p.Ended())
	}
	if err := p.Kill(); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestHowItEnds(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"true": true, "false": false} {
		p, err := proc.Start(exec.Command(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(time.Minute); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if !p.Ended() {
			t.Errorf("%s: it runs on", name)
		}
	}
	if _, err := proc.Start(exec.Command("/no/such/program")); err == nil {
		t.Error("no error")
	}
}
