//go:build chaos

package chaos_test

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// orders is what a client process is told at its start, as the first line of its input. Later lines are one word each.
type orders struct {
	Proc    int
	Seed    uint64
	Addrs   []string
	Master  string            // of Sentinels
	Cluster bool              //
	Apart   bool              // each address is a server that knows nothing of the others
	Via     map[string]string // whom to dial instead
	Timeout time.Duration     // of reads
	Lease   time.Duration
	Targets []target
	Workers int
	Parties int // workers of all clients
	Forces  bool
	Stale   bool
	Nests   string
	Store   string
	Agent   string // the socket of the agent; "": there is none
	History string // the file
}

// target is a name to be contended for.
type target struct {
	Name, Family string
	Long         bool // it may be held for longer than a lease
}

// What the parent says, after the orders.
const (
	saySettle = "settle" // the faults are over: get all you want once more, then be idle
	sayHold   = "hold"   // all clients are warm: hold for long what is to be held for long
	sayClose  = "close"  // close the client
	sayStarve = "starve" // followed by a number: have as many loops take the CPU, of which there is one
	sayFeed   = "feed"   // no more of that
)

// What a client process says.
const (
	saysWarm   = "warm"   // locks were taken
	saysIdle   = "idle"   // it has what it wanted
	saysClosed = "closed" // nothing of the client is left
)

// diary writes a process's history. Each event is in the file when note returns, so that no kill can take it back.
type diary struct {
	proc int

	mu   sync.Mutex
	file *os.File
	err  error // the first
}

func openDiary(path string, proc int) (*diary, error) {
	f, err := os.Create(path)
	return &diary{proc: proc, file: f}, err
}

func (d *diary) note(e history.Event) {
	e.Proc = d.proc
	line, err := json.Marshal(e)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		_, err = d.file.Write(append(line, '\n'))
	}
	if d.err == nil {
		d.err = err
	}
}

func (d *diary) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.file.Close(); d.err == nil {
		d.err = err
	}
	return d.err
}
