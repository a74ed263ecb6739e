// Package backend is what locks need of Redis, over go-redis: scripts that run once, and subscriptions, in every shape of Redis.
package backend

import (
	"context"
	"crypto/fips140"
	"crypto/sha1"
	"encoding/hex"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxFastTimeout is so short that hardly anybody minds waiting for it, and so long that a server in good health doesn't need it, nor does a
// process that was throttled for a moment.
const MaxFastTimeout = 250 * time.Millisecond

// Longest is what durations that a program chooses are cut to: nobody lives to see the difference, and what is added to them never overflows.
const Longest = 100 * 365 * 24 * time.Hour

// Traits is what the servers allow: which keys a script may have, and how messages are passed on.
type Traits struct {
	MultiLockScripts bool   // a script may have the keys of several locks of a node
	UndeclaredKeys   bool   // ... in its arguments, as those that it is declared to use have to be of one slot
	Redirects        bool   // a server that isn't a key's says so
	PerNode          bool   // a message is heard on the node of its channel only
	OneSlot          bool   // one SUBSCRIBE takes channels of one slot only
	Publish          any    // the command to publish on a lock's channel with: a string, boxed as it goes into every release. See cluster
	NumSubCommand    string // the PUBSUB subcommand that counts a channel's subscribers; a node of a cluster may not know it
}

// Endpoint is what one subscription connection can listen to.
type Endpoint struct {
	Node string // the channels of this node; "" where all are heard everywhere
	Bus  bool   // of a cluster: the channels that are never sharded
}

// Result is what became of one call of several.
type Result struct {
	Reply any
	Err   error
}

// Call is one run of a script.
type Call struct {
	Script     *Script
	SendSource bool   // send the source: the server doesn't know the script (yet)
	Fast       bool   // give up after Redis.FastTimeout: nobody looks at ctx while the answer is waited for
	Renew      bool   // use the connections reserved for renewals
	Node       string // of a renewal: where Keys were when it was made up; where they are elsewhere by now, it is redisfail.ErrElsewhere
	RouteKey   string // of a call without Keys: it runs on the server that this key lives on, and follows no redirection from there
	Keys       []string
	Boxed      []any // Keys once more, if they are at hand like that: boxing a string allocates
	Args       []any
}

// PubSub is one connection that listens to channels. Receive is for one goroutine; the rest may be
// called beside it.
type PubSub interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context) error
	// Receive waits for the next event. ErrIdle after timeout without one; any other error is final.
	Receive(ctx context.Context, timeout time.Duration) (Event, error)
	// Current is ErrGone if the server that it is connected to isn't where these channels are published, not all of them; any other error says
	// nothing of that. Otherwise it returns those that the server is handing on: they may be published elsewhere already. It may ask that server.
	Current(ctx context.Context, channels []string) (leaving map[string]bool, err error)
	Close() error
}

// Event is what a PubSub received.
type Event struct {
	Kind    EventKind
	Channel string
	Payload string
	Keys    []string // in place of Payload, in an invalidation message of client-side caching: the keys that have changed
}

// EventKind tells events apart.
type EventKind uint8

// The kinds of events.
const (
	Pong EventKind = iota
	Subscribed
	Unsubscribed
	Message
)

// ErrIdle is returned by PubSub.Receive when nothing came within its timeout.
var ErrIdle error = idleError{}

type idleError struct{}

func (idleError) Error() string { return "lockdog: nothing received" }

// Script is a Lua script and its digest.
type Script struct {
	Name   string
	Source string
	SHA    string

	digest, source any // boxed once, not for every call
}

// NewScript returns the script with its digest. That is the name by which Redis knows the script, and protects nothing: so a program that allows
// no SHA-1 (GODEBUG=fips140=only) may have it.
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
