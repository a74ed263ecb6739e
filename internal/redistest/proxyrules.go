package redistest

import (
	"bytes"
	"time"
)

// Direction is the direction of bytes through a [Proxy].
type Direction int

// The two directions.
const (
	Up   Direction = iota // from client to server: requests
	Down                  // from server to client: replies and messages
)

// Chunk is what one read from a connection returned. On loopback that is what the peer wrote at once, up to 64 KiB: a
// request or a pipeline of them, a reply or several. Two replies that the server wrote separately may be one chunk if
// the proxy read late. So a test that counts replies must wait for each reply before it sends the next request.
type Chunk struct {
	Conn int // number of the connection through this proxy, from 1
	Dir  Direction
	Data []byte
}

// Verdict is what happens to a chunk.
type Verdict struct {
	kind verdictKind
	wait time.Duration
	keep int
}

type verdictKind int

const (
	pass verdictKind = iota
	drop
	cut
	hold
	delay
	truncate
)

// The verdicts without a parameter.
var (
	// Pass delivers the chunk; it is the zero Verdict.
	Pass = Verdict{kind: pass}
	// Drop drops the chunk, and everything after it in its direction of its connection: TCP never loses data only in
	// the middle. Both peers still consider the connection open.
	Drop = Verdict{kind: drop}
	// Cut drops the chunk and resets the connection (ECONNRESET) on both sides.
	Cut = Verdict{kind: cut}
	// Hold holds the chunk, and everything after it in its direction of its connection, until [Proxy.Release]. The
	// chunk is delivered then even if its sender has closed the connection in the meantime, like a request that a
	// network delays beyond every timeout.
	Hold = Verdict{kind: hold}
)

// Delay delivers the chunk d later. Until then the proxy reads nothing more in this direction of the connection, so the
// delays of chunks that come close together add up.
func Delay(d time.Duration) Verdict { return Verdict{kind: delay, wait: d} }

// Truncate delivers the first n bytes of the chunk and then ends the connection in that direction (EOF in the middle of
// a command or reply).
func Truncate(n int) Verdict { return Verdict{kind: truncate, keep: n} }

// Rule decides about chunks. A proxy calls its rule for one chunk at a time, so a rule may count in plain variables. It
// must not call the proxy, and not keep or change Data.
type Rule func(Chunk) Verdict

// When is a rule: verdict v for every chunk in direction d that satisfies all conditions.
func When(d Direction, v Verdict, conditions ...func(Chunk) bool) Rule {
	return func(c Chunk) Verdict {
		if c.Dir != d {
			return Pass
		}
		for _, ok := range conditions {
			if !ok(c) {
				return Pass
			}
		}
		return v
	}
}

// Contains is a condition: the chunk contains text. It ignores ASCII case, so Contains("evalsha") finds a command in any
// spelling.
func Contains(text string) func(Chunk) bool {
	want := bytes.ToLower([]byte(text))
	return func(c Chunk) bool { return bytes.Contains(bytes.ToLower(c.Data), want) }
}

// Nth is a condition: the chunk is the n-th, from 1, for which this condition is checked, over all connections. Put it
// last, so that only chunks count that satisfy the others.
func Nth(n int) func(Chunk) bool {
	seen := 0
	return func(Chunk) bool {
		seen++
		return seen == n
	}
}

// ReplyTo is a rule: verdict v for the first chunk that comes down a connection after a request that satisfies all
// conditions.
func ReplyTo(v Verdict, conditions ...func(Chunk) bool) Rule {
	asked := When(Up, Cut, conditions...) // any verdict but Pass works
	waiting := make(map[int]bool)         // by connection
	return func(c Chunk) Verdict {
		if c.Dir == Up {
			waiting[c.Conn] = asked(c) != Pass || waiting[c.Conn]
		} else if waiting[c.Conn] {
			waiting[c.Conn] = false
			return v
		}
		return Pass
	}
}

// FirstOf is a rule: it tries the rules in order, and gives the first verdict that isn't Pass. Later rules don't see
// that chunk.
func FirstOf(rules ...Rule) Rule {
	return func(c Chunk) Verdict {
		for _, r := range rules {
			if v := r(c); v != Pass {
				return v
			}
		}
		return Pass
	}
}
