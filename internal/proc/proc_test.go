package proc_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/internal/proc"
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

// Ctrl-C goes to a process group.
func TestProcessGroup(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		cmd := exec.Command("sleep", "60")
		if own {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		}
		p, err := proc.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		group, err := syscall.Getpgid(p.PID())
		if err != nil || (group == p.PID()) != own || (group == syscall.Getpgrp()) == own {
			t.Errorf("own %v: process group %d of %d, ours is %d; %v", own, group, p.PID(), syscall.Getpgrp(), err)
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}
}

func TestHowItEnds(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"true": true, "false": false} {
		cmd := exec.Command(name)
		p, err := proc.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(time.Minute); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		<-p.Done()
		if !p.Ended() || cmd.ProcessState.Success() != ok {
			t.Errorf("%s: ended %v, %v", name, p.Ended(), cmd.ProcessState)
		}
	}
	if _, err := proc.Start(exec.Command("/no/such/program")); err == nil {
		t.Error("no error")
	}
}
