// Package redisfail decides what a failed call to Redis means: whether it may have run, whether to try again, and the
// error.type of its metrics and spans. In package lock and its internal packages, only this one reads the texts of
// errors.
//
// It knows three sources of errors. An error reply of the server is a refusal: the call changed nothing that lasts,
// because no script of lockdog fails after its effect (lock/internal/script/after.lua). Only an error reply to WAIT
// comes after the script has run: UNBLOCKED is classified as unclear, and package dispatch recognizes the others by the
// script's reply. The errors in errors.go are lockdog's own. All others arose on the way to the server or back: the
// call may have run, unless the error shows that it wasn't sent (see Classify).
package redisfail

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/telemetry"
)

// Failure is what the error of a call means.
type Failure struct {
	Kind    telemetry.ErrorType
	Retry   bool // the next try may succeed
	Unclear bool // the script may have run, or may still run
	Keys    KeyFault
}

// transient is the failure of a call that ran nothing and may be repeated; permanent, of one that would fail again.
func transient(kind telemetry.ErrorType) Failure { return Failure{Kind: kind, Retry: true} }
func permanent(kind telemetry.ErrorType) Failure { return Failure{Kind: kind} }

// onTheWay is the failure of a call if all that is known is that the call failed on the way to the server or back.
var onTheWay = Failure{Kind: telemetry.ErrorNetwork, Retry: true, Unclear: true}

// KeyFault is why a server refused the keys of a call, or of a command in a script. The command didn't run.
type KeyFault int

// The faults of keys.
const (
	KeysMoved      KeyFault = iota + 1 // a key belongs to another node, or its slot is being migrated
	KeysSplit                          // migration has moved only some of the keys: a call with one key works
	KeysCrossSlot                      // the server, or a proxy, wants all keys of a call to be in one slot
	KeysUndeclared                     // a script used a key that its call doesn't declare, and the server forbids that
)

// Classify returns what the error of a call means.
func Classify(err error) Failure {
	err = lastOf(err)
	if reply, ok := errorReply(err); ok {
		_, f := readReply(reply.Error())
		return f
	}
	var panicked *PanicError
	var denied *DeniedError
	switch {
	case errors.As(err, &panicked):
		return Failure{Kind: telemetry.ErrorOther, Unclear: true}
	case errors.As(err, &denied):
		return Failure{Kind: telemetry.ErrorOther, Retry: true, Unclear: true}
	case errors.Is(err, ErrElsewhere):
		return transient(telemetry.ErrorClusterdown)
	case errors.Is(err, ErrLate):
		return transient(telemetry.ErrorTimeout)
	case noConnection(err):
		return transient(telemetry.ErrorPool)
	case errors.Is(err, redis.ErrClosed), errors.Is(err, ErrClosed):
		return permanent(telemetry.ErrorOther)
	case IsUnreached(err):
		return transient(telemetry.ErrorNetwork)
	}
	var ne net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
		return Failure{Kind: telemetry.ErrorTimeout, Retry: true, Unclear: true}
	}
	return onTheWay
}

// MayHaveMoved reports whether a call may have failed because its key now lives on another server: any timeout or
// network error may mean that.
func MayHaveMoved(err error) bool {
	switch Classify(err).Kind {
	case telemetry.ErrorNetwork, telemetry.ErrorTimeout, telemetry.ErrorClusterdown, telemetry.ErrorReadonly,
		telemetry.ErrorLoading:
		return !errors.Is(err, context.Canceled)
	}
	return false
}

// IsTemporaryRefusal reports whether the server refused a call, so that nothing ran, and may accept the same call
// later.
func IsTemporaryRefusal(err error) bool {
	_, ok := errorReply(err)
	f := Classify(err)
	return ok && f.Retry && !f.Unclear
}

// IsUnsent reports whether the error shows that the call never left the process. After any other error the call may
// have left it or not.
func IsUnsent(err error) bool {
	return err != nil && (noConnection(err) || IsUnreached(err) || errors.Is(err, redis.ErrClosed))
}

// IsUnreached reports whether connecting failed: no server answered, or its certificate isn't trusted.
func IsUnreached(err error) bool {
	var op *net.OpError
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &untrusted)
}

// IsHungUp reports whether an open connection failed without a reply or a timeout, as when the server closes it. An
// error of unknown origin counts as that, too.
func IsHungUp(err error) bool {
	var reply redis.Error
	var ne net.Error
	if err == nil || errors.As(err, &reply) || IsUnreached(err) || errors.As(err, &ne) && ne.Timeout() {
		return false
	}
	return Classify(err) == onTheWay
}

// noConnection reports whether the client's pool had no connection to give.
func noConnection(err error) bool {
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// IsNullMessage reports whether go-redis couldn't read a pub/sub message because it has null in place of a text: an
// invalidation message after a database was flushed.
func IsNullMessage(err error) bool {
	return err != nil && strings.Contains(err.Error(), "unsupported pubsub message payload")
}

// errorReply returns the server's error reply in err.
func errorReply(err error) (redis.Error, bool) {
	var reply redis.Error
	return reply, errors.As(lastOf(err), &reply) && !errors.Is(err, redis.Nil) // no script of lockdog returns nil
}
