//go:build !linux

package delay

import "time"

// coarse is how far Go's timers may be off.
const coarse = 0

func nap(d time.Duration) { time.Sleep(d) }
