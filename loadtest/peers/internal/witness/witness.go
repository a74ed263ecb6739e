// Package witness watches a lock from outside: the processes of a measurement note in shared
// memory who has the lock. So it detects two holders at a time, and measures handoffs, without a command to Redis.
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

// shared is what all processes see.
type shared struct {
	holder   atomic.Uint64 // of now; 0: none
	last     atomic.Uint64 // the one before it
	released atomic.Int64  // when last began to release, in ns since 1970, which is the same clock in all processes
	overlaps atomic.Int64  // grants while another held the lock
}

const size = int(unsafe.Sizeof(shared{}))

// Create makes the memory, as a file with a name that doesn't exist yet.
func Create(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(size)), f.Close())
}

// Open joins the others. Processes are numbered from 0.
func Open(name string, process int) (*Witness, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping stays
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return &Witness{mem: mem, shared: (*shared)(unsafe.Pointer(&mem[0])), process: uint64(process)}, nil
}

// Close leaves.
func (w *Witness) Close() error {
	w.shared = nil
	return syscall.Munmap(w.mem)
}

const goroutineBits = 32

// id identifies a goroutine; never 0.
func (w *Witness) id(goroutine int) uint64 { return (w.process+1)<<goroutineBits | uint64(goroutine) }

// Turn says how a lock came to its holder.
type Turn struct {
	Handed  bool          // another goroutine had it before
	Between bool          // another process had
	Awaited bool          // the new holder was waiting when it was released: it took ...
	Took    time.Duration // ... from then to the grant
}

// Granted notes that a goroutine, which began to ask at began, has had the lock since now.
func (w *Witness) Granted(goroutine int, began, now time.Time) Turn {
	id := w.id(goroutine)
	if !w.holder.CompareAndSwap(0, id) {
		w.overlaps.Add(1)
		w.holder.Store(id)
	}
	last, released := w.last.Swap(id), w.released.Load()
	t := Turn{Handed: last != 0 && last != id}
	t.Between = t.Handed && last>>goroutineBits != id>>goroutineBits
	if t.Handed && began.UnixNano() < released {
		t.Awaited, t.Took = true, time.Duration(now.UnixNano()-released)
	}
	return t
}

// Releasing notes that a goroutine is about to release the lock.
func (w *Witness) Releasing(goroutine int, now time.Time) {
	w.released.Store(now.UnixNano())
	if !w.holder.CompareAndSwap(w.id(goroutine), 0) {
		w.overlaps.Add(1) // another has overwritten it
	}
}

// Overlaps is how often a goroutine got the lock while another had it, in all processes.
func (w *Witness) Overlaps() int64 { return w.overlaps.Load() }
