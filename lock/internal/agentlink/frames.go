package agentlink

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// A session is one HTTP request to Path whose body and response stay open. Both consist of lines of JSON. The agent
// begins with a Hello. Then the client sends Requests, and the agent sends a Reply for each, in any order.
const (
	Path = "/v1/session"
	// MaxLeases is how many leases a Request has at most.
	MaxLeases = 256
	// MaxLine is the length of the longest line in bytes. A Request needs about 150 bytes per lease, as a rule, and
	// 6 KiB if a name has as many characters to escape as it may have.
	MaxLine = 2 << 20
	// MaxTime is the longest time that a client gives the agent for a Request: see Link.Renew.
	MaxTime = 3 * time.Second
)

// MaxPath is the length of the longest path that all systems allow for a Unix socket.
const MaxPath = 103

// Hello is the agent's first line.
type Hello struct {
	Clock int64 `json:"clock"` // milliseconds on the agent's own clock, which begins anew when the agent starts
}

// Request asks the agent to renew leases.
type Request struct {
	ID     uint64  `json:"id"`
	By     int64   `json:"by"`   // on the agent's clock: it must renew nothing after that
	Node   string  `json:"node"` // where the locks are, as the client's backend names it
	Leases []Lease `json:"leases"`
}

// Lease is a lease as Redis stores it.
type Lease struct {
	Key          string         `json:"key"` // of the lock
	Owner        string         `json:"owner"`
	Holding      script.Holding `json:"holding,omitempty"`
	Milliseconds int64          `json:"ms"` // the expiry that a renewal sets
}

// Reply says which leases of a Request were renewed, by their indices.
type Reply struct {
	ID      uint64 `json:"id"`
	Renewed []int  `json:"renewed"`
	Error   string `json:"error,omitempty"` // why others weren't, for people
}

var errRequest = errors.New("bad request")

// The limits of what a client sends: more than any lock of package lock has.
const (
	maxText         = 4 << 10
	maxMilliseconds = int64(366 * 24 * time.Hour / time.Millisecond)
)

// Check returns an error if the agent must refuse the request. It accepts only owners of lockdog: a hash of a program,
// which is no lock, has no such field, so nobody can make the agent let it expire.
func (r *Request) Check() error {
	if len(r.Leases) == 0 || len(r.Leases) > MaxLeases {
		return fmt.Errorf("%w: %d leases; 1 to %d are allowed", errRequest, len(r.Leases), MaxLeases)
	}
	for i := range r.Leases {
		l := &r.Leases[i]
		id, _ := script.ClientOf(l.Owner)
		switch {
		case l.Key == "" || len(l.Key) > maxText:
			return fmt.Errorf("%w: lease %d: a key of %d bytes; 1 to %d are allowed", errRequest, i, len(l.Key), maxText)
		case id == "" || len(l.Owner) > maxText:
			return fmt.Errorf("%w: lease %d: %.64q is no owner of lockdog, <client id>:<16 hex digits>-<number>",
				errRequest, i, l.Owner)
		case l.Holding > script.HoldsPermit:
			return fmt.Errorf("%w: lease %d: holding %d; 0 to %d are allowed", errRequest, i, l.Holding, script.HoldsPermit)
		case l.Milliseconds < 1 || l.Milliseconds > maxMilliseconds:
			return fmt.Errorf("%w: lease %d: %d ms; 1 to %d are allowed",
				errRequest, i, l.Milliseconds, maxMilliseconds)
		}
	}
	return nil
}
