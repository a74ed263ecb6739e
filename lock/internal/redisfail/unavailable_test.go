package redisfail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// lost is an error like lock.LostError, with the reason of the loss.
type lost struct{ error }

func (lost) Is(target error) bool { return target == ErrLost }
func (e lost) Unwrap() error      { return e.error }

func TestIsUnavailable(t *testing.T) {
	t.Parallel()
	reading := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, test := range []struct {
		err  error
		want bool
		hint string // part of it; "": none
	}{
		{ReplyError("LOADING Redis is loading the dataset in memory"), true, "starting"},
		{ReplyError("MASTERDOWN Link with MASTER is down"), true, "primary"},
		{ReplyError("CLUSTERDOWN Hash slot not served"), true, "slot"},
		{ReplyError("TRYAGAIN Multiple keys request during rehashing of slot"), true, "slot"},
		{ReplyError("NOREPLICAS Not enough good replicas to write."), true, "min-replicas"},
		{ReplyError("MISCONF Errors writing to the AOF file: No space left on device"), true, "disk"},
		{ReplyError("READONLY You can't write against a read only replica."), true, "failover"},
		{ReplyError("OOM command not allowed when used memory > 'maxmemory'."), true, "maxmemory"},
		{ReplyError("BUSY Redis is busy running a script."), true, "SCRIPT KILL"},
		{ReplyError("ERR max number of clients reached"), true, "maxclients"},
		{ReplyError("ERR Can't execute 'evalsha': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"), true, "Subscribe"},
		{ReplyError("NOAUTH Authentication required."), true, "password"},
		{ReplyError("WRONGPASS invalid username-password pair or user is disabled."), true, "password"},
		{ReplyError("ERR AUTH <password> called without any password configured for the default user."), true, "password"},
		{ReplyError("DENIED Redis is running in protected mode"), true, "password"},
		{ReplyError("NOPERM this user has no permissions to run the 'evalsha' command"), false, "ACL"},
		{ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value"), false, ""},
		{ReplyError("CROSSSLOT Keys in request don't hash to the same slot"), false, ""},
		{ReplyError("ERR unknown command 'evalsha'"), false, ""},
		{redis.Nil, false, ""},
		{redis.ErrPoolTimeout, true, "PoolSize"},
		{redis.ErrClosed, false, ""}, // the program closed its client
		{ErrClosed, false, ""},
		{ErrLate, true, ""},
		{ErrElsewhere, true, ""},
		{NewTimeout("silent"), true, ""},
		{reading, true, ""},
		{&net.OpError{Op: "dial", Err: errors.New("connect: connection refused")}, true, ""},
		{io.EOF, true, ""},
		{io.ErrUnexpectedEOF, true, ""},
		{&PanicError{"boom"}, false, ""},
		{Denied(errors.New("breaker: open")), true, "Limiter"},
		{Denied(fmt.Errorf("WAIT: %w", redis.ErrClosed)), false, ""},
		{Denied(context.Canceled), false, ""},
		{Denied(ErrClosed), false, ""},
		{Denied(&PanicError{"boom"}), false, ""},
		{Denied(io.EOF), true, ""},
		{lost{io.EOF}, false, ""},
		{fmt.Errorf("ctx ended: %w", lost{&net.OpError{Op: "dial", Err: errors.New("connect: connection refused")}}), false, ""},
		{fmt.Errorf("acquire: %w", &net.OpError{Op: "dial", Err: &tls.CertificateVerificationError{}}), true, ""},
		{fmt.Errorf("acquire: %w", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}), true, ""},
		{fmt.Errorf("acquire: %w", redis.ErrPoolTimeout), true, "PoolSize"},
		{errors.Join(fmt.Errorf("acquire: %w", lost{io.EOF}), io.EOF), true, ""},
		{Denied(reading), true, ""},
		{Denied(nil), false, ""},
		{context.Canceled, false, ""},
		{context.DeadlineExceeded, false, ""},
		{&net.OpError{Op: "dial", Err: context.Canceled}, false, ""},
		{fmt.Errorf("%w, after: %w", context.DeadlineExceeded, reading), true, ""},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), false, ""},
		{errors.Join(errors.New("other"), io.EOF), true, ""},
		{nil, false, ""},
	} {
		if got := IsUnavailable(test.err); got != test.want {
			t.Errorf("IsUnavailable(%v) = %v", test.err, got)
		}
		if hint := Hint(test.err); (hint == "") != (test.hint == "") || !strings.Contains(hint, test.hint) {
			t.Errorf("Hint(%v) = %q, want one with %q", test.err, hint, test.hint)
		}
	}
}
