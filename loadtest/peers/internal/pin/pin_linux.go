// Package pin keeps this process, and the processes that it starts in that time, on one CPU. On several CPUs, the time
// to wake up a core dominates the wait of a single goroutine.
package pin

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// One keeps all threads of this process on one CPU until undo is called. Children inherit it.
func One() (undo func() error, err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read the CPUs that may be used: %w", err)
	}
	for cpu := range len(before) * 64 { // takes the last CPU, because interrupts go to the first more often
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

// maxPasses is more than setAll needs until there is no new thread.
const maxPasses = 100

// setAll sets the CPUs of every thread. A new thread inherits the CPUs of its creator, for which they may not be set
// yet. So setAll repeats until there is no new thread.
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
			// ESRCH: the thread has ended.
			if err := unix.SchedSetaffinity(tid, set); err != nil && !errors.Is(err, unix.ESRCH) {
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
