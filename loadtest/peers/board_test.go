package peers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// board is memory that the processes of a measurement share. They count operations in it, and record who holds the lock
// that all of them want. So it detects two holders at the same time, and measures handoffs, without a command to Redis.
type board struct {
	done     atomic.Int64  // operations that have ended, also before the start and after the goal
	start    atomic.Int64  // the number of operations after which the measurement starts
	goal     atomic.Int64  // the number of operations at which it ends
	started  atomic.Int64  // when start was reached, in ns since 1970: all processes have that clock
	ended    atomic.Int64  // when goal was reached
	holder   atomic.Uint64 // current holder; 0: none
	last     atomic.Uint64 // holder of the last grant
	released atomic.Int64  // when the last release began
	// overlaps is more than 0 if two held the lock at the same time. An overlap may count twice: at the grant, and at
	// the release of the earlier holder.
	overlaps atomic.Int64
}

// openBoard maps a file, which it creates if there is none.
func openBoard(name string) (_ *board, closeBoard func() error, err error) {
	const size = int(unsafe.Sizeof(board{}))
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // the mapping remains
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", name, err)
	}
	return (*board)(unsafe.Pointer(&mem[0])), func() error { return syscall.Munmap(mem) }, nil
}

// over reports whether the goal is reached.
func (b *board) over() bool { return b.done.Load() >= b.goal.Load() }

// count counts an operation, and reports whether the measurement has started, and whether it has ended.
func (b *board) count() (started, ended bool) {
	n, start, goal := b.done.Add(1), b.start.Load(), b.goal.Load()
	switch n {
	case start:
		b.started.Store(time.Now().UnixNano())
	case goal:
		b.ended.Store(time.Now().UnixNano())
	}
	return n > start, n > goal
}

// stop ends the measurement early.
func (b *board) stop() {
	b.start.Store(0)
	b.goal.Store(0)
}

// granted records that a caller, which has waited since began, holds the lock from now on. It returns the previous
// holder, 0 if there was none, and the time since that one's release, 0 if the caller wasn't waiting then.
func (b *board) granted(id uint64, began, now time.Time) (previous uint64, handoff time.Duration) {
	if !b.holder.CompareAndSwap(0, id) {
		b.overlaps.Add(1)
		b.holder.Store(id)
	}
	if released := b.released.Load(); began.UnixNano() < released {
		handoff = time.Duration(now.UnixNano() - released)
	}
	return b.last.Swap(id), handoff
}

// releasing records that a caller is about to release the lock.
func (b *board) releasing(id uint64, now time.Time) {
	b.released.Store(now.UnixNano())
	if !b.holder.CompareAndSwap(id, 0) {
		b.overlaps.Add(1) // another caller has got the lock in the meantime
	}
}

// TestBoard hands a lock over between two processes, and then grants it to both at once.
func TestBoard(t *testing.T) {
	var boards [2]*board
	name := filepath.Join(t.TempDir(), "board")
	for i := range boards {
		b, closeBoard, err := openBoard(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = closeBoard() }()
		boards[i] = b
	}
	at := func(ms int64) time.Time { return time.UnixMilli(1000 + ms) }
	grant := func(id uint64, began, now int64, wantPrevious uint64, wantHandoff time.Duration) {
		t.Helper()
		previous, handoff := boards[id-1].granted(id, at(began), at(now))
		if previous != wantPrevious || handoff != wantHandoff {
			t.Errorf("after %d, %v", previous, handoff)
		}
	}
	grant(1, 0, 1, 0, 0)
	boards[0].releasing(1, at(2))
	grant(2, 1, 4, 1, 2*time.Millisecond) // it waited
	boards[1].releasing(2, at(5))
	grant(1, 6, 7, 2, 0) // it came when the lock was free
	if n := boards[1].overlaps.Load(); n != 0 {
		t.Errorf("%d overlaps of locks that were held one after the other", n)
	}
	grant(2, 4, 8, 1, 3*time.Millisecond)
	boards[0].releasing(1, at(9))
	if n := boards[1].overlaps.Load(); n != 2 {
		t.Errorf("%d overlaps, although two held the lock", n)
	}
}
