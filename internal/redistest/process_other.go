//go:build !linux

package redistest

import "syscall"

// diesWithParent can promise nothing here: a test binary that is killed leaves
// its servers behind.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
