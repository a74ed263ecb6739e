//go:build !linux

package lock_test

import (
	"syscall"
	"time"
)

func diesWithParent() *syscall.SysProcAttr { return nil }

// machineTime is a clock that all processes of the machine share. Here it is the wall clock.
func machineTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
