//go:build !linux

package lock_test

import "time"

// machineTime is a clock that all processes of the machine share. Here it is the wall clock.
func machineTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
