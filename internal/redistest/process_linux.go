package redistest

import "syscall"

// diesWithParent makes the kernel end the child when the test binary is gone,
// which after a panic, a -timeout or a SIGKILL runs no cleanup.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
