package lock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

// A node that a Quorum did without is no error of a request that has the lock; its span says what failed there.
func TestQuorumMemberThatFailedIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		clients := make([]*lock.Client, 3)
		for i := range clients {
			h := hooked{}
			if i == 2 {
				h.up = func(backend.Call) error { return errors.New("connection reset by peer") }
			}
			clients[i] = openHooked(t, memory.New(), h, lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter))
		}
		q, err := lock.NewQuorum(clients...)
		if err != nil {
			t.Fatal(err)
		}
		l := try(t, q.Mutex("job"))
		time.Sleep(2 * time.Second) // the third isn't waited for
		free(t, l)
		seen := map[string]int{}
		for _, span := range s.spansNamed("acquire member default") {
			got := attrsOf(span)
			seen[got["lockdog.outcome"]+" "+got["error.type"]]++
			if span.Status.Code == codes.Error {
				t.Errorf("%v has the status %v", got, span.Status)
			}
		}
		if seen["acquired "] != 2 || seen["error network"] != 1 {
			t.Errorf("acquires %v", seen)
		}
	})
}
