// Package witness watches a lock from outside. The processes of a measurement record in shared memory who holds the
// lock. So it detects two holders at the same time, and measures handoffs, without a command to Redis.
package witness

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Witness is one lock, as seen by one process.
type Witness struct {
	mem []byte
	*shared
	process uint64
}

// shared is in the memory that all processes share.
type shared struct {
	holder   atomic.Uint64 // current holder; 0: none
	last     atomic.Uint64 // holder of the last grant
	released atomic.Int64  // when the last release began, in ns since 1970: all processes have that clock
	overlaps atomic.Int64  // see Overlaps
}

const size = int(unsafe.Sizeof(shared{}))

// Create makes the memory: a new file in folder or, if folder is "", where temporary files are.
func Create(folder string) (name string, err error) {
	f, err := os.CreateTemp(folder, "lockdog-peers-")
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(f.Truncate(int64(size)), f.Close())
}

// Open opens the memory for one process. Processes are numbered from 0.
func Open(name string, process int) (*Witness, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping remains
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return &Witness{mem: mem, shared: (*shared)(unsafe.Pointer(&mem[0])), process: uint64(process)}, nil
}

// Close unmaps the memory.
func (w *Witness) Close() error {
	w.shared = nil
	return syscall.Munmap(w.mem)
}

const goroutineBits = 32

// id returns the id of a goroutine. It is never 0.
func (w *Witness) id(goroutine int) uint64 { return (w.process+1)<<goroutineBits | uint64(goroutine) }

// Tally counts operations, and the grants to another goroutine and to another process than the previous one.
type Tally struct {
	Operations int64 `json:"operations"`
	Handed     int64 `json:"handed"`
	Between    int64 `json:"between"`
}

// Add adds another Tally.
func (t *Tally) Add(o Tally) {
	t.Operations += o.Operations
	t.Handed += o.Handed
	t.Between += o.Between
}

// Granted records that a goroutine, which has waited since began, holds the lock from now on. It returns the Tally of
// this grant and, if another goroutine held the lock before, the time since that goroutine's release, and whether this
// one was waiting already at that release.
func (w *Witness) Granted(goroutine int, began, now time.Time) (turn Tally, took time.Duration, awaited bool) {
	id := w.id(goroutine)
	if !w.holder.CompareAndSwap(0, id) {
		w.overlaps.Add(1)
		w.holder.Store(id)
	}
	turn.Operations = 1
	last, released := w.last.Swap(id), w.released.Load()
	if last == 0 || last == id {
		return turn, 0, false
	}
	turn.Handed = 1
	if last>>goroutineBits != id>>goroutineBits {
		turn.Between = 1
	}
	return turn, time.Duration(now.UnixNano() - released), began.UnixNano() < released
}

// Releasing records that a goroutine is about to release the lock.
func (w *Witness) Releasing(goroutine int, now time.Time) {
	w.released.Store(now.UnixNano())
	if !w.holder.CompareAndSwap(w.id(goroutine), 0) {
		w.overlaps.Add(1) // another goroutine has got the lock in the meantime
	}
}

// Overlaps returns a number that is 0 if the lock never had two holders at the same time, in all processes. An overlap
// may count twice: at the grant, and at the release of the earlier holder.
func (w *Witness) Overlaps() int64 { return w.overlaps.Load() }
