//go:build chaos

package chaos_test

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// now reads the clock that all processes of the machine share and nobody sets.
func now() history.Time {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(fmt.Sprintf("clock_gettime: %v", errno))
	}
	return history.Time(ts.Nano())
}

// onClock is t, of this process, on that clock.
func onClock(t time.Time) history.Time { return now().Add(time.Until(t)) }
