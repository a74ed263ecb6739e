package memory_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/memory"
)

// A client waits for this server as long as one of go-redis does that is told nothing else.
func TestTimeoutIsTheDefaultOfGoRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	if got, want := memory.New().Backend().Timeout(), rdb.Options().ReadTimeout; got != want {
		t.Errorf("%v, go-redis has %v", got, want)
	}
}
