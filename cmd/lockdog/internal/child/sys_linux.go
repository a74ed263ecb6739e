package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// diesWithParent has the kernel ask the command to end when this process is gone, should its guard be gone, too.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }

// clock is a clock, in ns, that all processes share and that goes on while the machine sleeps.
func clock() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // never fails
	return now.Nano()
}
