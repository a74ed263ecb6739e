package redisfail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/telemetry"
)

func TestIsNullMessage(t *testing.T) {
	t.Parallel()
	if !IsNullMessage(fmt.Errorf("redis: unsupported pubsub message payload: %T", nil)) {
		t.Error("go-redis's error isn't recognized")
	}
	for _, err := range []error{nil, errors.New("EOF"), errors.New("redis: unsupported pubsub message: \"subscribe\"")} {
		if IsNullMessage(err) {
			t.Errorf("%v is another", err)
		}
	}
}

// What isn't a reply is classified by where the call failed, also when it is wrapped, and is never a refusal.
func TestClassify_NoReply(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, test := range []struct {
		err    error
		want   Failure
		unsent bool
		moved  bool
	}{
		{&PanicError{Value: "a hook"}, Failure{Kind: telemetry.ErrorOther, Unclear: true}, false, false},
		{&DeniedError{Err: errors.New("breaker: open")}, Failure{Kind: telemetry.ErrorOther, Retry: true, Unclear: true}, false, false},
		{ErrElsewhere, retried(telemetry.ErrorClusterdown), false, true},
		{ErrLate, retried(telemetry.ErrorTimeout), false, true},
		{ErrClosed, final(telemetry.ErrorOther), false, false},
		{redis.ErrClosed, final(telemetry.ErrorOther), true, false},
		{redis.ErrPoolTimeout, retried(telemetry.ErrorPool), true, false},
		{redis.ErrPoolExhausted, retried(telemetry.ErrorPool), true, false},
		{dial, retried(telemetry.ErrorNetwork), true, true},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, retried(telemetry.ErrorNetwork), true, true},
		{NewTimeout("no answer"), Failure{Kind: telemetry.ErrorTimeout, Retry: true, Unclear: true}, false, true},
		{context.DeadlineExceeded, Failure{Kind: telemetry.ErrorTimeout, Retry: true, Unclear: true}, false, true},
		{context.Canceled, Failure{Kind: telemetry.ErrorNetwork, Retry: true, Unclear: true}, false, false},
		{errors.New("EOF"), Failure{Kind: telemetry.ErrorNetwork, Retry: true, Unclear: true}, false, true},
		{redis.Nil, Failure{Kind: telemetry.ErrorNetwork, Retry: true, Unclear: true}, false, true},
	} {
		for _, err := range []error{test.err, fmt.Errorf("acquire: %w", test.err)} {
			if got := Classify(err); got != test.want {
				t.Errorf("Classify(%v) = %+v, want %+v", err, got, test.want)
			}
			if IsUnsent(err) != test.unsent {
				t.Errorf("IsUnsent(%v) is %v", err, !test.unsent)
			}
			if MayHaveMoved(err) != test.moved {
				t.Errorf("MayHaveMoved(%v) is %v", err, !test.moved)
			}
			if IsTemporaryRefusal(err) {
				t.Errorf("%v is no reply", err)
			}
		}
	}
}
