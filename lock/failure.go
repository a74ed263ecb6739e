package lock

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/telemetry"
)

// errLate is the outcome of a call that reached the server past its not-after and wrote nothing.
var errLate error = &timeoutError{"lockdog: timeout: the call reached Redis too late and wrote nothing"}

// failure is what the error of a call to Redis means for it.
type failure struct {
	kind    telemetry.ErrorType
	retry   bool // the next try may well succeed
	unclear bool // the script may have run, or may run yet
	keys    keyFault
}

// passes is the failure of a call that ran nothing, and may succeed when it is made again; lasts of one that won't.
func passes(kind telemetry.ErrorType) failure { return failure{kind: kind, retry: true} }
func lasts(kind telemetry.ErrorType) failure  { return failure{kind: kind} }

// keyFault is what a node of a cluster has against the keys of a call, or of a command in its script. The command didn't run.
type keyFault int

const (
	keysAway      keyFault = iota + 1 // one is another node's, or on the way to one
	keysSeparated                     // some have left for another node, and others haven't: a call for one alone is served
	keysApart                         // they are of several slots, which the server, or a proxy before it, doesn't take in one call
)

// refusals are the answers by which a server says that it ran nothing: all of those that Redis 6.2 to 8 and Valkey 8 and 9 have for a
// call of a script. Retried are those that a server may stop giving by itself: a failover ends, a replica catches up, a disk is written to
// again. Others need somebody who changes something. OOM is one of them: Redis expires and evicts what it may before it says so.
//
// An error is told by a word of its text, which comes first, or where it arose inside a script is wrapped in ways that differ between
// versions.
var refusals = []struct {
	word string
	failure
}{
	{"NOSCRIPT", passes(telemetry.ErrorNoscript)},
	{"READONLY", passes(telemetry.ErrorReadonly)},
	{"REDIRECT", passes(telemetry.ErrorReadonly)}, // READONLY of a Valkey that knows the primary
	{"NOREPLICAS", passes(telemetry.ErrorReadonly)},
	{"MISCONF", passes(telemetry.ErrorReadonly)},
	{"UNBLOCKED", failure{kind: telemetry.ErrorReadonly, retry: true, unclear: true}}, // of WAIT, as the primary becomes a replica: the script has run
	{"LOADING", passes(telemetry.ErrorLoading)},
	{"MASTERDOWN", passes(telemetry.ErrorLoading)},
	{"CLUSTERDOWN", passes(telemetry.ErrorClusterdown)},
	{"TRYAGAIN", failure{kind: telemetry.ErrorClusterdown, retry: true, keys: keysSeparated}},
	{"MOVED", failure{kind: telemetry.ErrorClusterdown, retry: true, keys: keysAway}},
	{"ASK", failure{kind: telemetry.ErrorClusterdown, retry: true, keys: keysAway}},
	{"BUSY", passes(telemetry.ErrorBusy)},
	{"CROSSSLOT", failure{kind: telemetry.ErrorClusterdown, keys: keysApart}},
	{"OOM", lasts(telemetry.ErrorOOM)},
	{"NOPERM", lasts(telemetry.ErrorACL)},
	{"NOAUTH", lasts(telemetry.ErrorACL)},
	{"WRONGPASS", lasts(telemetry.ErrorACL)},
	{"DENIED", lasts(telemetry.ErrorACL)}, // by the protected mode
	{"NOPROTO", lasts(telemetry.ErrorOther)},
	{"EXECABORT", lasts(telemetry.ErrorOther)},
	{"WRONGTYPE", lasts(telemetry.ErrorOther)},
}

// phrases are refusals that have no word of their own, but ERR.
var phrases = []struct {
	text string
	failure
}{
	{"unknown command", lasts(telemetry.ErrorOther)}, // first, for it quotes the command
	{"max number of clients", passes(telemetry.ErrorPool)},
	{"you want redirect to does not exist", passes(telemetry.ErrorNetwork)}, // CLIENT TRACKING: the other connection has broken
	{"killed by user with SCRIPT KILL", passes(telemetry.ErrorBusy)},        // which ends only what has written nothing
	{"on a stale replica", passes(telemetry.ErrorLoading)},
	{"while the cluster is down", passes(telemetry.ErrorClusterdown)},
	{"non local key", failure{kind: telemetry.ErrorClusterdown, retry: true, keys: keysAway}}, // it is another node's by now
	{"hash to the same slot", failure{kind: telemetry.ErrorClusterdown, keys: keysApart}},
	{"undeclared keys were accessed", failure{kind: telemetry.ErrorClusterdown, retry: true, keys: keysAway}}, // while the slot moves
	{"ACL failure", lasts(telemetry.ErrorACL)},
	{"user executing the script can't", lasts(telemetry.ErrorACL)},
	{"AUTH <password> called", lasts(telemetry.ErrorACL)},
}

// refusalOf finds a server's answer in the two lists. What isn't in them is final.
func refusalOf(text string) failure {
	first, _, _ := strings.Cut(text, " ")
	for _, r := range refusals {
		if r.word == first {
			return r.failure
		}
	}
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.failure
		}
	}
	for _, r := range refusals { // "ERR Error running script (call to ...): @user_script: 1: -READONLY ..." of Redis 6.2
		if hasWord(text, r.word) {
			return r.failure
		}
	}
	return failure{kind: telemetry.ErrorOther}
}

// hasWord reports whether a word in capitals is in the text, and not as a part of a longer one.
func hasWord(text, word string) bool {
	capital := func(at int) bool { return at >= 0 && at < len(text) && 'A' <= text[at] && text[at] <= 'Z' }
	for from := 0; ; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return false
		}
		at += from
		from = at + len(word)
		if !capital(at-1) && !capital(from) {
			return true
		}
	}
}

// elsewhere says whether the failure of a call may be because the key lives on another server by now.
func elsewhere(err error) bool {
	switch classify(err).kind {
	case telemetry.ErrorNetwork, telemetry.ErrorTimeout, telemetry.ErrorClusterdown, telemetry.ErrorReadonly, telemetry.ErrorLoading:
		return !errors.Is(err, context.Canceled)
	}
	return false
}

// keptApart says whether an error is that of a server, or a proxy, that wants the keys of a call in one slot.
func keptApart(err error) bool { return err != nil && classify(err).keys == keysApart }

// answered reports whether an error is an answer of the server.
func answered(err error) (redis.Error, bool) {
	var answer redis.Error
	return answer, errors.As(err, &answer) && !errors.Is(err, redis.Nil) // no script of ours answers nil
}

// passing reports whether a server refused a call, which ran nothing, and may stop refusing by itself.
func passing(err error) bool {
	_, ok := answered(err)
	f := classify(err)
	return ok && f.retry && !f.unclear
}

// classify says what a failed call means. An answer of the server is a refusal: it ran nothing that lasts, for no script fails after its
// effect (internal/script/tell.lua). A failure on the way there or back leaves it open.
func classify(err error) failure {
	if answer, ok := answered(err); ok {
		return refusalOf(answer.Error())
	}
	var replicas *ReplicasError
	var panicked *panicError
	switch {
	case errors.As(err, &panicked):
		return failure{kind: telemetry.ErrorOther, unclear: true}
	case errors.As(err, &replicas):
		return passes(telemetry.ErrorOther)
	case errors.Is(err, backend.ErrElsewhere):
		return passes(telemetry.ErrorClusterdown)
	case errors.Is(err, errLate):
		return passes(telemetry.ErrorTimeout)
	case noConnection(err):
		return passes(telemetry.ErrorPool)
	case errors.Is(err, redis.ErrClosed), errors.Is(err, ErrClosed):
		return lasts(telemetry.ErrorOther)
	case notDialed(err):
		return passes(telemetry.ErrorNetwork)
	}
	var ne net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
		return failure{kind: telemetry.ErrorTimeout, retry: true, unclear: true}
	}
	return failure{kind: telemetry.ErrorNetwork, retry: true, unclear: true}
}

// unsent says whether a call with this error never left the process.
func unsent(err error) bool {
	return err != nil && (noConnection(err) || notDialed(err) || errors.Is(err, redis.ErrClosed))
}

// wrongType says whether Redis answered that the key holds something else.
func wrongType(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") }

// noConnection says whether the pool gave none.
func noConnection(err error) bool {
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// notDialed says whether no server was reached, or none that is whom it says it is.
func notDialed(err error) bool {
	var op *net.OpError
	var stranger *tls.CertificateVerificationError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &stranger)
}
