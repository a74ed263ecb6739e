//go:build !linux

package proc

import "syscall"

// dieWithParent does nothing: only on Linux does this package make the kernel kill a child when its parent ends. If
// this program is killed, a redis-server continues. Children that read stdin end, because their stdin ends.
func dieWithParent(*syscall.SysProcAttr) {}
