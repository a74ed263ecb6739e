package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// A node that a Quorum did without is no error of a request that has the lock; its span says what failed there.
func TestQuorumMemberThatFailedIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		clients := make([]*lock.Client, 3)
		for i := range clients {
			var tap fakeredis.Tap
			if i == 2 {
				tap.Up = func(redis.Cmder) error { return errReset }
			}
			clients[i] = openTapped(t, redistest.StartFake(t), tap, lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter))
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
