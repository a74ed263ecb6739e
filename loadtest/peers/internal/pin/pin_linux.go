// Package pin keeps this process, and those that it starts meanwhile, on one CPU: where cores wake up dominates what one
// goroutine waits for.
package pin

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// One keeps all threads of this process on one CPU until the returned function is called. Children inherit it.
func One() (undo func() error, err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read the CPUs that may be used: %w", err)
	}
	for cpu := range len(before) * 64 { // the last: interrupts go to the first more often
		if before.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
		}
	}
	undo = func() error { return setAll(&before) }
	if err := setAll(&one); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// maxPasses is more than it ever needs until no thread is new.
const maxPasses = 100

// setAll sets the CPUs of every thread. A new thread has those of its creator, which may not be set
// by then. So it repeats until there is no new thread.
func setAll(set *unix.CPUSet) error {
	done := make(map[int]bool)
	for range maxPasses {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		fresh := false
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || done[tid] {
				continue
			}
			if err := unix.SchedSetaffinity(tid, set); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("keep thread %d on its CPUs: %w", tid, err)
			}
			done[tid], fresh = true, true
		}
		if !fresh {
			return nil
		}
	}
	return errors.New("ever new threads")
}
