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

// refusals are the answers by which a server says that it ran nothing, told by a word of the error's text: inside
// a script an error is wrapped in ways that differ between versions.
var refusals = []struct {
	word string
	failure
}{
	{"NOSCRIPT", failure{telemetry.ErrorNoscript, true, false}},
	{"READONLY", failure{telemetry.ErrorReadonly, true, false}},
	{"LOADING", failure{telemetry.ErrorLoading, true, false}},
	{"MASTERDOWN", failure{telemetry.ErrorLoading, true, false}},
	{"CLUSTERDOWN", failure{telemetry.ErrorClusterdown, true, false}},
	{"TRYAGAIN", failure{telemetry.ErrorClusterdown, true, false}},
	{"MOVED", failure{telemetry.ErrorClusterdown, true, false}},
	{"ASK ", failure{telemetry.ErrorClusterdown, true, false}},
	{"CROSSSLOT", failure{telemetry.ErrorClusterdown, false, false}},
	{"NOPERM", failure{telemetry.ErrorACL, false, false}},
	{"NOAUTH", failure{telemetry.ErrorACL, false, false}},
	{"WRONGPASS", failure{telemetry.ErrorACL, false, false}},
	{"ACL failure", failure{telemetry.ErrorACL, false, false}},
	{"user executing the script can't", failure{telemetry.ErrorACL, false, false}},
	{"max number of clients", failure{telemetry.ErrorPool, true, false}},
	{"BUSY", failure{telemetry.ErrorBusy, true, false}},
	{"OOM", failure{telemetry.ErrorOOM, false, false}},
}

// elsewhere says whether the failure of a call may be because the key lives on another server by now.
func elsewhere(err error) bool {
	switch classify(err).kind {
	case telemetry.ErrorNetwork, telemetry.ErrorTimeout, telemetry.ErrorClusterdown, telemetry.ErrorReadonly, telemetry.ErrorLoading:
		return !errors.Is(err, context.Canceled)
	}
	return notHere(err)
}

// classify says what a failed call means. An answer of the server is a refusal: it ran nothing that lasts, for no script fails after its
// effect (scripts/tell.lua). A failure on the way there or back leaves it open.
func classify(err error) failure {
	var answer redis.Error
	if errors.As(err, &answer) && !errors.Is(err, redis.Nil) { // no script of ours answers nil
		text := answer.Error()
		for _, r := range refusals {
			if strings.Contains(text, r.word) {
				return r.failure
			}
		}
		return failure{kind: telemetry.ErrorOther}
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
