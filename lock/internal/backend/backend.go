// Package backend runs the scripts of locks, and subscribes to channels, over go-redis. It runs a script at most once,
// except for renewals: see Redis.Eval.
package backend

import (
	"context"
	"crypto/fips140"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxFastTimeout bounds how long an inline call (package dispatch) may ignore the end of its ctx. It is short for
// callers, but long enough for a healthy server, and for a process that was throttled for a moment.
const MaxFastTimeout = 250 * time.Millisecond

// Longest bounds durations that a program chooses, so that sums with them never overflow.
const Longest = 100 * 365 * 24 * time.Hour

// Traits is what the servers allow: which keys a script may have, and how messages are passed on.
type Traits struct {
	MultiLockScripts bool   // a script may have the keys of several locks of a node
	KeysAsArguments  bool   // such a script gets its keys as arguments, because declared keys must be of one slot
	Redirects        bool   // a server refuses keys of other servers, and names their server
	PerNode          bool   // perhaps a lock's messages are received only on the node of its key
	SubscribeOneSlot bool   // one SUBSCRIBE takes channels of one slot only
	Publish          any    // the command that publishes on a lock's channel: a string, boxed once. See cluster
	NumSubCommand    string // the PUBSUB subcommand that counts subscribers
}

// Endpoint is what one subscription connection can listen to.
type Endpoint struct {
	Node string // only the channels of this node; "": all channels
	Bus  bool   // in a cluster: only plain channels, which are never sharded
}

// Result is the outcome of one of several calls.
type Result struct {
	Reply any
	Err   error
}

// Call is one run of a script.
type Call struct {
	Script     *Script
	SendSource bool   // send the source, because the server may not know the script
	Fast       bool   // wait for the reply for Redis.FastTimeout only: nobody looks at ctx while the call runs
	Stream     bool   // use the stream, if there is one: see Redis.OpenStream
	Renew      bool   // use the connections reserved for renewals
	Node       string // of a renewal: the node of its keys. If it has changed: ErrElsewhere, unless NewRedis got renew
	RouteKey   string // of a call without Keys: it runs where this key lives, and follows no redirection
	Keys       []string
	Boxed      []any // the first len(Boxed) Keys, if the caller has them boxed: boxing a string allocates
	Args       []any
}

// PubSub is one connection that listens to channels. Only one goroutine may call Receive; any may call the rest.
type PubSub interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context) error
	// Receive waits for the next event. It returns ErrIdle if none came within timeout. The connection goes on after
	// ErrIdle, after a redis.Error (the refusal of a command), and after an error for which redisfail.IsNullMessage is
	// true. Any other error is final.
	Receive(ctx context.Context, timeout time.Duration) (Event, error)
	// Current checks whether these channels are published at the connection's server. It may ask the server. The error
	// matches ErrGone if one of the channels isn't published there any more. After any other error nothing is known.
	// (At a Ring, Current only checks that the shard still belongs to the Ring and is up.) If leaving isn't nil, it has
	// the channels whose slots the server has lost or is moving away: their messages may already be published at
	// another server.
	Current(ctx context.Context, channels []string) (leaving map[string]bool, err error)
	Close() error
}

// Event is what a PubSub received.
type Event struct {
	Kind    EventKind
	Channel string
	Payload string
	Keys    []string // of an invalidation message of client-side caching, instead of Payload: the changed keys
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	Pong EventKind = iota
	Subscribed
	Unsubscribed
	Message
)

// ErrIdle is returned by PubSub.Receive when nothing came within its timeout.
var ErrIdle = errors.New("lockdog: nothing received")

// Script is a Lua script and its digest.
type Script struct {
	Name   string
	Source string
	SHA    string

	digest, source any // boxed once, not in every call
}

// NewScript returns the script with its SHA-1 digest, by which Redis knows the script. The digest protects nothing, so
// it is made also in programs that forbid SHA-1 (GODEBUG=fips140=only).
func NewScript(name, source string) *Script {
	var sum [sha1.Size]byte
	fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(source)) })
	sha := hex.EncodeToString(sum[:])
	return &Script{Name: name, Source: source, SHA: sha, digest: sha, source: source}
}

// IsRunBy reports whether a command runs the script.
func (s *Script) IsRunBy(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 1 && (args[1] == s.digest || args[1] == s.source)
}
