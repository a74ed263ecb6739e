package backend_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// TestReserveOwnPushHandlers makes clients for renewals from one that handles push messages. go-redis writes its
// handlers into the options it was given; a second client with the very same ones can't register its own, which it
// logs, and where they are demanded it panics.
func TestReserveOwnPushHandlers(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Protocol: 3, // never dialed
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeEnabled},
	})
	defer func() { _ = rdb.Close() }()
	for range 2 {
		b, err := backend.NewRedis(rdb, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
}
