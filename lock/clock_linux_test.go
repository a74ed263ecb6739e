package lock_test

import (
	"syscall"
	"time"
	"unsafe"
)

// machineTime is a clock that all processes of the machine share and nobody sets: CLOCK_MONOTONIC.
func machineTime() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
