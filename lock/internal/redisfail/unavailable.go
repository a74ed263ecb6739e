package redisfail

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/telemetry"
)

// IsUnavailable reports whether a call failed because Redis is unavailable: it is silent, unreachable, starting, busy,
// full or read-only, refuses the credentials, or sent another error reply that it may stop sending by itself
// (Failure.Retry). A pool without a free connection, a Limiter that denies calls, and ErrElsewhere count, too. The end
// of a ctx alone doesn't, nor does a loss, whatever its reason: a call's ctx may end with the lease that it carries.
func IsUnavailable(err error) bool {
	if loss, ok := err.(interface{ Is(error) bool }); ok && loss.Is(ErrLost) {
		return false
	}
	switch e := err.(type) { //nolint:errorlint // it walks the tree, in which one error may be the end of a ctx and another Redis's
	case nil:
		return false
	case redis.Error:
		return !errors.Is(e, redis.Nil) && unavailable(e.Error())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), IsUnavailable)
	case *DeniedError, *tls.CertificateVerificationError:
		return true
	case net.Error:
		return e != context.DeadlineExceeded && !errors.Is(e, context.Canceled) //nolint:errorlint // an I/O timeout may wrap it
	}
	switch err { //nolint:errorlint // leaves
	case io.EOF, io.ErrUnexpectedEOF, ErrElsewhere, redis.ErrPoolTimeout, redis.ErrPoolExhausted:
		return true
	}
	return IsUnavailable(errors.Unwrap(err))
}

// unavailable is IsUnavailable for the text of an error reply.
func unavailable(text string) bool {
	found, f := readReply(text)
	switch found {
	case noAuth, wrongPass, denied, noPassword:
		return true
	}
	return f.Retry || f.Kind == telemetry.ErrorOOM
}

// Hint returns what to look at after a call failed with err; "": nothing but the error itself.
func Hint(err error) string {
	if noConnection(err) {
		return "every connection of the Redis client's pool is in use; see PoolSize"
	}
	if denied := (*DeniedError)(nil); errors.As(err, &denied) {
		return "it isn't Redis's answer: the Limiter of the Redis client, such as a circuit breaker, denied the call"
	}
	reply, ok := errorReply(err)
	if !ok {
		return ""
	}
	found, f := readReply(reply.Error())
	switch found {
	case noAuth, wrongPass, denied, noPassword:
		return "check the user name and the password of the Redis client"
	case noPerm:
		return "see the ACL page of the documentation for what lockdog needs"
	case "READONLY", "REDIRECT":
		return "a replica was asked to write: a failover is under way, or the client was given a replica's address"
	case listening:
		return "a command subscribed a connection of the Redis client's pool to a channel; subscribe with Client.Subscribe, which uses another connection"
	case "NOREPLICAS":
		return "too few replicas are connected; see min-replicas-to-write"
	case "MISCONF":
		return "Redis can't write to its disk"
	}
	switch f.Kind {
	case telemetry.ErrorOOM:
		return "Redis is full; see maxmemory"
	case telemetry.ErrorPool:
		return "Redis accepts no more connections; see maxclients"
	case telemetry.ErrorLoading:
		return "Redis is starting, or has lost its primary"
	case telemetry.ErrorBusy:
		return "Redis runs a script that takes too long; see SCRIPT KILL"
	case telemetry.ErrorClusterdown:
		if f.Retry {
			return "a slot of the cluster isn't served, or is being moved"
		}
	}
	return ""
}
