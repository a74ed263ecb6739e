package agentlink

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// A session is one HTTP request to Path whose body and response stay open. Both consist of lines of JSON. The agent
// begins with a Hello. Then the client sends Requests. The agent sends a Reply for each that has leases, in any order.
//
// The header Authorization has the client's secret. A session is for the owners of that client: see script.DigitsOf.
const (
	Path   = "/v1/session"
	Scheme = "Bearer " // before the secret
	// MaxLeases is how many leases, locks held and owners a Request has at most.
	MaxLeases = 256
	// MaxHolds is how many locks of one client the agent frees at most, if the client's process dies.
	MaxHolds = 1 << 16
	// MaxLine is the length of the longest line in bytes. A Request needs about 150 bytes per lease, as a rule, and
	// has fewer than MaxLeases if their names are long.
	MaxLine = 128 << 10
	// MaxTime is the longest time that a client gives the agent for a Request: see Link.Renew.
	MaxTime = 3 * time.Second
)

// MaxPath is the length of the longest path that all systems allow for a Unix socket.
const MaxPath = 103

// Hello is the agent's first line.
type Hello struct {
	Clock int64 `json:"clock"` // milliseconds on the agent's own clock, which begins anew when the agent starts
}

// Request asks the agent to renew leases, or tells it which locks the client holds.
type Request struct {
	ID     uint64  `json:"id,omitempty"`
	By     int64   `json:"by,omitempty"`   // on the agent's clock: it must renew nothing after that
	Node   string  `json:"node,omitempty"` // where the locks are, as the client's backend names it
	Leases []Lease `json:"leases,omitempty"`

	Held  []Hold   `json:"held,omitempty"`  // locks that the client has taken
	Freed []string `json:"freed,omitempty"` // owners that hold nothing any more
}

// Lease is a lease as Redis stores it.
type Lease struct {
	Key          string         `json:"key"` // of the lock
	Owner        string         `json:"owner"`
	Holding      script.Holding `json:"holding,omitempty"`
	Milliseconds int64          `json:"ms"` // the expiry that a renewal sets
}

// Hold is a lock that the agent frees if the client's process dies.
type Hold struct {
	Lease
	Release string `json:"release"` // the script that releases it, by name
	Counter string `json:"counter"` // the key of its token counter

	// For telemetry.
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Group       string `json:"group"`
	Traceparent string `json:"traceparent,omitempty"` // of the acquire
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

// Check returns an error if the agent must refuse the request. It accepts only owners of the client with the digits: so
// nobody can renew or release a lock of another, or make the agent let a hash of a program, which is no lock, expire.
func (r *Request) Check(digits string) error {
	if n := len(r.Leases) + len(r.Held) + len(r.Freed); n == 0 || n > MaxLeases {
		return fmt.Errorf("%w: %d leases; 1 to %d are allowed", errRequest, n, MaxLeases)
	} else if len(r.Leases) > 0 && n > len(r.Leases) {
		return fmt.Errorf("%w: leases to renew, and locks that are held or freed; one of them is allowed", errRequest)
	}
	for i := range r.Leases {
		if err := r.Leases[i].check(digits); err != nil {
			return fmt.Errorf("%w: lease %d: %w", errRequest, i, err)
		}
	}
	for i := range r.Held {
		if err := r.Held[i].check(digits); err != nil {
			return fmt.Errorf("%w: held %d: %w", errRequest, i, err)
		}
	}
	return nil
}

func (l *Lease) check(digits string) error {
	id, random := script.ClientOf(l.Owner)
	switch {
	case l.Key == "" || len(l.Key) > maxText:
		return fmt.Errorf("a key of %d bytes; 1 to %d are allowed", len(l.Key), maxText)
	case id == "" || len(l.Owner) > maxText:
		return fmt.Errorf("%.64q is no owner of lockdog, <client id>:<16 hex digits>-<number>", l.Owner)
	case random != digits:
		return fmt.Errorf("%.64q is the owner of another client", l.Owner)
	case l.Holding > script.HoldsPermit:
		return fmt.Errorf("holding %d; 0 to %d are allowed", l.Holding, script.HoldsPermit)
	case l.Milliseconds < 1 || l.Milliseconds > maxMilliseconds:
		return fmt.Errorf("%d ms; 1 to %d are allowed", l.Milliseconds, maxMilliseconds)
	}
	return nil
}

// Bytes returns how many bytes the lease needs at most, as JSON or in memory.
func (l *Lease) Bytes() int { return 128 + bytesOf(l.Key, l.Owner) }

// Bytes returns how many bytes the lock needs at most, as JSON or in memory.
func (h *Hold) Bytes() int {
	return 384 + h.Lease.Bytes() + bytesOf(h.Release, h.Counter, h.Name, h.Kind, h.Group, h.Traceparent)
}

// bytesOf returns how long texts are at most as JSON, where a byte may become six.
func bytesOf(texts ...string) (n int) {
	for _, text := range texts {
		n += len(text)
		for i := range len(text) {
			if c := text[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, c) >= 0 {
				n += 5
			}
		}
	}
	return n
}

// fitting returns how many of the leases one Request may have.
func fitting(leases []Lease) int {
	size := 0
	for i := range leases {
		size += leases[i].Bytes()
		if i == MaxLeases || i > 0 && size > MaxLine/2 {
			return i
		}
	}
	return len(leases)
}

func (h *Hold) check(digits string) error {
	if script.ReleaserNamed(h.Release) == nil {
		return fmt.Errorf("%.64q releases no lock", h.Release)
	}
	if !script.IsCounterOf(h.Counter, h.Key) {
		return fmt.Errorf("%.64q counts no tokens of %.64q", h.Counter, h.Key)
	}
	for _, text := range []string{h.Counter, h.Name, h.Kind, h.Group, h.Traceparent} {
		if len(text) > maxText {
			return fmt.Errorf("%.64q...: has %d bytes; %d are allowed", text, len(text), maxText)
		}
	}
	return h.Lease.check(digits)
}
