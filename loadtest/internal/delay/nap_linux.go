package delay

import (
	"syscall"
	"time"
)

// coarse is the assumed maximum error of Go's timers: an idle program waits for them in epoll_wait, in whole
// milliseconds.
const coarse = 2 * time.Millisecond

// nap sleeps for d, plus Linux's timer slack (50 µs by default), and longer on a busy machine. A signal may end it
// early.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // the caller checks the clock
}
