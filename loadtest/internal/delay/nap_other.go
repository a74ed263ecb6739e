//go:build !linux

package delay

import "time"

// coarse is the assumed error of Go's timers.
const coarse = 0

func nap(d time.Duration) { time.Sleep(d) }
