// Package waitgraph has the graph of waits for locks: the waits that clients write into Redis, their encoding, and the
// search for cycles. It does no I/O.
//
// A Wait waits for the holders of a lock. A holder waits itself, if there is a Wait that has a Hold with the holder's
// owner. If such steps lead back to the first Wait, no wait in the cycle ends by itself: that is a deadlock, if all of
// it is true at one moment. See Sighting.
package waitgraph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what is encoded.
const (
	MaxHolds = 16 // of one wait
	MaxWaits = 64 // in one text

	maxOwner   = 512  // bytes
	maxName    = 1024 // bytes
	maxKind    = 32   // bytes
	maxEncoded = 1 << 18
)

// The times by which clients write and read waits.
const (
	RefreshEvery   = time.Second            // if one of the client's waits carries a lease
	RefreshLag     = 50 * time.Millisecond  // a refresh is expected to be done so long after it was due
	StaleAfter     = 3 * RefreshEvery       // a client without a refresh for so long is dead or stopped
	SightingsApart = 500 * time.Millisecond // between the two sightings of a deadlock, at least
)

// Wait is one call of Lock that has waited for a while.
type Wait struct {
	Waiter      string    // the owner for which the lock is requested
	Name        string    // of the lock that is waited for, without the key prefix
	Kind        string    // of that lock, as in lockdog.kind
	Since       time.Time // by the clock of the waiting process, to the microsecond
	Traceparent string    // of the acquire, "" unless that is sampled
	Holds       []Hold    // the Client's live leases that the wait's ctx carries, or its Multi has taken
	Breaks      bool      // the wait may be chosen to fail: WithDeadlockBreaking
	Refreshed   time.Time // its last refresh was then or later, by our clock; zero for our own waits; not encoded
}

// Awaited is the lock that a wait waits for. It is all of a wait that Graph.Next needs: waits for one lock, of one
// kind, lead to the same next steps.
type Awaited struct{ Name, Kind string }

// Awaited returns the lock that the wait waits for.
func (w *Wait) Awaited() Awaited { return Awaited{w.Name, w.Kind} }

// Hold is a lease. Its JSON is part of what Encode returns.
type Hold struct {
	Name  string `json:"n"` // of the lock, without the key prefix
	Kind  string `json:"k"` // of the lock, as in lockdog.kind
	Owner string `json:"o"`
	Token int64  `json:"t"`
}

type encodedWait struct {
	Waiter      string `json:"w"`
	Name        string `json:"n"`
	Kind        string `json:"k"`
	Since       int64  `json:"s"` // µs
	Traceparent string `json:"t,omitempty"`
	Holds       []Hold `json:"h,omitempty"`
	Breaks      bool   `json:"b,omitempty"`
}

// Encode returns waits in the form that Redis stores. It leaves out what exceeds MaxWaits, MaxHolds, or the length that
// Decode accepts.
func Encode(waits []Wait) string {
	var text strings.Builder
	var one bytes.Buffer
	enc := json.NewEncoder(&one)
	enc.SetEscapeHTML(false)
	for _, w := range waits[:min(len(waits), MaxWaits)] {
		one.Reset()
		_ = enc.Encode(encodedWait{ // can't fail: there are only texts and numbers
			Waiter: w.Waiter, Name: w.Name, Kind: w.Kind, Since: w.Since.UnixMicro(), Traceparent: w.Traceparent,
			Holds: w.Holds[:min(len(w.Holds), MaxHolds)], Breaks: w.Breaks,
		})
		if text.Len()+one.Len()+2 > maxEncoded {
			break
		}
		if text.Len() > 0 {
			text.WriteByte(',')
		}
		text.Write(bytes.TrimSuffix(one.Bytes(), []byte("\n")))
	}
	return "[" + text.String() + "]"
}

// ErrMalformed is matched by the errors of Decode.
var ErrMalformed = errors.New("lockdog: malformed waits")

// Decode parses a text of Encode. Anybody may have written the text, so Decode checks it. Unknown JSON keys are
// ignored: a later version may add some.
func Decode(text string) ([]Wait, error) {
	if len(text) > maxEncoded || !utf8.ValidString(text) {
		return nil, ErrMalformed
	}
	var list []encodedWait
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(list) == 0 || len(list) > MaxWaits {
		return nil, fmt.Errorf("%w: %d waits", ErrMalformed, len(list))
	}
	waits := make([]Wait, 0, len(list))
	for i := range list {
		e := &list[i]
		if err := e.check(); err != nil {
			return nil, err
		}
		waits = append(waits, Wait{
			Waiter: e.Waiter, Name: e.Name, Kind: e.Kind, Since: time.UnixMicro(e.Since), Traceparent: e.Traceparent,
			Holds: append([]Hold(nil), e.Holds...), Breaks: e.Breaks, // nil: no holds
		})
	}
	return waits, nil
}

// check returns an error if a field isn't valid.
func (e *encodedWait) check() error {
	const lastSince = int64(1) << 53 // µs: the year 2255
	switch {
	case bad(e.Waiter, maxOwner), bad(e.Name, maxName), bad(e.Kind, maxKind):
		return fmt.Errorf("%w: waiter, name or kind", ErrMalformed)
	case e.Since <= 0 || e.Since > lastSince:
		return fmt.Errorf("%w: since %d", ErrMalformed, e.Since)
	case e.Traceparent != "" && len(e.Traceparent) != len("00-00000000000000000000000000000000-0000000000000000-00"):
		return fmt.Errorf("%w: traceparent", ErrMalformed)
	case len(e.Holds) > MaxHolds:
		return fmt.Errorf("%w: %d holds", ErrMalformed, len(e.Holds))
	}
	for _, h := range e.Holds {
		if bad(h.Owner, maxOwner) || bad(h.Name, maxName) || bad(h.Kind, maxKind) || h.Token < 0 {
			return fmt.Errorf("%w: hold", ErrMalformed)
		}
	}
	return nil
}

// bad reports whether a text is empty or too long.
func bad(s string, most int) bool { return s == "" || len(s) > most }
