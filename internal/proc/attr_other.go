//go:build !linux

package proc

import "syscall"

// dieWithParent does nothing: only on Linux does this package make the kernel kill a child when its parent ends. If
// this program is killed, a redis-server continues; children that read their stdin end when that ends.
func dieWithParent(*syscall.SysProcAttr) {}
