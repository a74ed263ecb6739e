package delay

import (
	"syscall"
	"time"
)

// coarse is how far Go's timers may be off: an idle program waits for them in epoll_wait, in whole milliseconds.
const coarse = 2 * time.Millisecond

// nap sleeps to within the 50 µs that Linux may add, or until a signal comes.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // the caller looks at the clock
}
