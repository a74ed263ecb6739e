//go:build !linux

package proc

import "syscall"

// Elsewhere nothing ties a child's life to ours: if this program is killed, a redis-server stays behind. Children that read their
// input end with that.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
