//go:build chaos

package chaos_test

import (
	"slices"
	"testing"
	"time"
)

// fault is something that goes wrong. put makes it so, and returns what undoes it.
type fault struct {
	name   string
	shapes []string // nil: all
	atOnce bool     // it takes no time
	agent  bool     // it is the agent's; there must be one
	alone  bool     // two of these don't go together: they are about whole servers, and one would get in the other's way
	silent bool     // connections die without either end being told
	kills  bool     // a client process
	evicts bool     // Redis drops keys of its choice
	// loses reports whether Redis may lose, or do in vain, writes that it has confirmed.
	loses func(shape string, s step) bool
	clock bool // a server's clock steps
	stale bool // a primary goes on that has been replaced: leases of all lengths are held for longer than that takes
	// ready, if there is one, waits for the moment to begin.
	ready func(t *testing.T, r *run, s step)
	put   func(t *testing.T, r *run, s step) (heal func(t *testing.T))
}

func (f fault) on(shape string) bool { return f.shapes == nil || slices.Contains(f.shapes, shape) }

// mark is f with something said of it.
func mark(f fault, say func(f *fault)) fault {
	say(&f)
	return f
}

func evicts(f *fault) { f.evicts = true }

// calm is no fault at all, to compare the others with.
var calm = fault{name: "calm", put: func(*testing.T, *run, step) func(*testing.T) { return nothing }}

func nothing(*testing.T) {}

// faults are all of them.
var faults = slices.Concat([]fault{calm}, networkFaults, processFaults, agentFaults, alone(slices.Concat(serverFaults, failoverFaults, staleFaults, clockFaults)))

func alone(all []fault) []fault {
	for i := range all {
		all[i].alone = true
	}
	return all
}

func faultNamed(name string) (fault, bool) {
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	if i < 0 {
		return fault{}, false
	}
	return faults[i], true
}

func always(string, step) bool { return true }

// A primary that says nothing for a while is replaced, where there is somebody to do so.
func ifReplaced(shape string, s step) bool {
	switch shape {
	case sentinel, failoverCluster, cluster:
		return s.For > 1200*time.Millisecond
	}
	return false
}
