package redistest

import (
	"bytes"
	"time"
)

// Direction is the way bytes go through a [Proxy].
type Direction int

// The two directions.
const (
	Up   Direction = iota // from client to server: requests
	Down                  // from server to client: replies and messages
)

func (d Direction) String() string {
	if d == Up {
		return "up"
	}
	return "down"
}

// Chunk is what one read from a connection gave. On loopback that is what
// the peer wrote at once, up to 64 KiB: a request or a pipeline of them, a reply
// or several. Two replies that the server wrote on their own may come as
// one chunk when the proxy's turn came late; a test that counts replies
// lets each request wait for the reply before.
type Chunk struct {
	Conn int // number of the connection through this proxy, from 1
	Dir  Direction
	Seq  int // number of the chunk in its direction of its connection, from 1
	Data []byte
}

// Verdict is what becomes of a chunk.
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
	// Drop lets the chunk vanish, and all that follows it in its direction of
	// its connection: TCP never loses a piece out of the middle. Both
	// peers still believe in the connection.
	Drop = Verdict{kind: drop}
	// Cut loses the chunk and resets the connection (ECONNRESET) on both sides.
	Cut = Verdict{kind: cut}
	// Hold keeps the chunk, and what follows it in its direction of its
	// connection, until [Proxy.Release]. It is delivered then even if the
	// peer that sent it has closed the connection meanwhile: a request that a
	// network delays past every timeout.
	Hold = Verdict{kind: hold}
)

// Delay delivers the chunk d later, and what follows it in its direction of its
// connection not earlier.
func Delay(d time.Duration) Verdict { return Verdict{kind: delay, wait: d} }

// Truncate delivers the first n bytes of the chunk and then ends the connection
// in that direction (EOF in the middle of a command or reply).
func Truncate(n int) Verdict { return Verdict{kind: truncate, keep: n} }

// Rule decides about chunks. A proxy calls its rule for one chunk at a time, so
// a rule may count in plain variables; it must not call the proxy, nor keep or
// change Data.
type Rule func(Chunk) Verdict

// When gives verdict v to every chunk that goes in direction d and satisfies
// all conditions.
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

// Contains is a condition: the chunk has text in it, ASCII case ignored, so that
// Contains("evalsha") finds a command however the client writes it.
func Contains(text string) func(Chunk) bool {
	want := bytes.ToLower([]byte(text))
	return func(c Chunk) bool { return bytes.Contains(bytes.ToLower(c.Data), want) }
}

// Nth is a condition: the chunk is the n-th, from 1, for which it is asked, over
// all connections. Put it last, so that only chunks count that satisfy the
// others.
func Nth(n int) func(Chunk) bool {
	seen := 0
	return func(Chunk) bool {
		seen++
		return seen == n
	}
}

// ReplyTo gives verdict v to the first chunk that comes down a connection after
// a request that satisfies all conditions went up.
func ReplyTo(v Verdict, conditions ...func(Chunk) bool) Rule {
	asked := When(Up, Cut, conditions...) // any verdict but Pass would do
	waiting := make(map[int]bool)         // by connection
	return func(c Chunk) Verdict {
		switch {
		case c.Dir == Up:
			if asked(c) != Pass {
				waiting[c.Conn] = true
			}
			return Pass
		case waiting[c.Conn]:
			delete(waiting, c.Conn)
			return v
		default:
			return Pass
		}
	}
}

// FirstOf asks the rules in turn and takes the first verdict that is not Pass.
// Later rules do not see that chunk.
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
