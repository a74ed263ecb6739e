package lock

import (
	"fmt"
	"testing"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// lockdog's own errors aren't taken for a refusal of the server, which is waited out.
func TestOwnErrors_AreNoRefusals(t *testing.T) {
	t.Parallel()
	afterRefusal := &redisfail.RetriedError{Last: dispatch.ErrNoReply, Before: redisfail.ReplyError("READONLY x")}
	for _, err := range []error{afterRefusal, fmt.Errorf("at a node: %w", afterRefusal), dispatch.ErrNoReply, dispatch.ErrBusyWorkers, errNoAnswer, errNodeTimeout, &ReplicasError{}} {
		if redisfail.IsTemporaryRefusal(err) {
			t.Errorf("%v is no reply of a server", err)
		}
	}
}
