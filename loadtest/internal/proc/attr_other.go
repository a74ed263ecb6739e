//go:build !linux

package proc

import "syscall"

// attributes can't tie a child's life to ours here: if this program is killed, a redis-server stays behind. The other children end
// with their input.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
