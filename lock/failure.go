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
}

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
	{"NOSCRIPT", failure{telemetry.ErrorNoscript, true, false}},
	{"READONLY", failure{telemetry.ErrorReadonly, true, false}},
	{"REDIRECT", failure{telemetry.ErrorReadonly, true, false}}, // READONLY of a Valkey that knows the primary
	{"NOREPLICAS", failure{telemetry.ErrorReadonly, true, false}},
	{"MISCONF", failure{telemetry.ErrorReadonly, true, false}},
	{"UNBLOCKED", failure{telemetry.ErrorReadonly, true, true}}, // of WAIT, as the primary becomes a replica: the script has run
	{"LOADING", failure{telemetry.ErrorLoading, true, false}},
	{"MASTERDOWN", failure{telemetry.ErrorLoading, true, false}},
	{"CLUSTERDOWN", failure{telemetry.ErrorClusterdown, true, false}},
	{"TRYAGAIN", failure{telemetry.ErrorClusterdown, true, false}},
	{"MOVED", failure{telemetry.ErrorClusterdown, true, false}},
	{"ASK", failure{telemetry.ErrorClusterdown, true, false}},
	{"BUSY", failure{telemetry.ErrorBusy, true, false}},
	{"CROSSSLOT", failure{telemetry.ErrorClusterdown, false, false}},
	{"OOM", failure{telemetry.ErrorOOM, false, false}},
	{"NOPERM", failure{telemetry.ErrorACL, false, false}},
	{"NOAUTH", failure{telemetry.ErrorACL, false, false}},
	{"WRONGPASS", failure{telemetry.ErrorACL, false, false}},
	{"DENIED", failure{telemetry.ErrorACL, false, false}}, // by the protected mode
	{"NOPROTO", failure{telemetry.ErrorOther, false, false}},
	{"EXECABORT", failure{telemetry.ErrorOther, false, false}},
	{"WRONGTYPE", failure{telemetry.ErrorOther, false, false}},
}

// phrases are refusals that have no word of their own, but ERR.
var phrases = []struct {
	text string
	failure
}{
	{"unknown command", failure{telemetry.ErrorOther, false, false}}, // first, for it quotes the command
	{"max number of clients", failure{telemetry.ErrorPool, true, false}},
	{"you want redirect to does not exist", failure{telemetry.ErrorNetwork, true, false}}, // CLIENT TRACKING: the other connection has broken
	{"killed by user with SCRIPT KILL", failure{telemetry.ErrorBusy, true, false}},        // which ends only what has written nothing
	{"on a stale replica", failure{telemetry.ErrorLoading, true, false}},
	{"while the cluster is down", failure{telemetry.ErrorClusterdown, true, false}},
	{"non local key", failure{telemetry.ErrorClusterdown, true, false}}, // it is another node's by now
	{"hash to the same slot", failure{telemetry.ErrorClusterdown, false, false}},
	{"undeclared keys were accessed", failure{telemetry.ErrorClusterdown, true, false}}, // while the slot moves
	{"ACL failure", failure{telemetry.ErrorACL, false, false}},
	{"user executing the script can't", failure{telemetry.ErrorACL, false, false}},
	{"AUTH <password> called", failure{telemetry.ErrorACL, false, false}},
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
	return notHere(err)
}

// notHere reports whether a node of a cluster refused a command of a script because of where its keys are: they are another node's, or on the way
// to one. The command didn't run.
func notHere(err error) bool {
	text := err.Error()
	return strings.Contains(text, "ttempted to access") || strings.Contains(text, "undeclared keys were accessed")
}

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
// effect (scripts/tell.lua). A failure on the way there or back leaves it open.
func classify(err error) failure {
	if answer, ok := answered(err); ok {
		return refusalOf(answer.Error())
	}
	var replicas *ReplicasError
	var panicked *panicError
	switch {
	case errors.As(err, &panicked):
		return failure{telemetry.ErrorOther, false, true}
	case errors.As(err, &replicas):
		return failure{telemetry.ErrorOther, true, false}
	case errors.Is(err, backend.ErrElsewhere):
		return failure{telemetry.ErrorClusterdown, true, false}
	case errors.Is(err, errLate):
		return failure{telemetry.ErrorTimeout, true, false}
	case noConnection(err):
		return failure{telemetry.ErrorPool, true, false}
	case errors.Is(err, redis.ErrClosed), errors.Is(err, ErrClosed):
		return failure{telemetry.ErrorOther, false, false}
	case notDialed(err):
		return failure{telemetry.ErrorNetwork, true, false}
	}
	var ne net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
		return failure{telemetry.ErrorTimeout, true, true}
	}
	return failure{telemetry.ErrorNetwork, true, true}
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
