package backend_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
)

// The client for renewals has the program's options, but nothing that two clients can't share: where maintenance
// notifications are required, go-redis panics when a second client registers for them at the first one's processor.
func TestRenewalClientSharesNothing(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", DialerRetries: 1, // nobody is there
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeEnabled},
	})
	defer func() { _ = rdb.Close() }()
	b, err := backend.NewRedis(rdb, nil)
	if err != nil {
		t.Fatal(err)
	}
	call := backend.Call{Script: backend.NewScript("none", "return 1"), Keys: []string{"k"}, Renew: true, Node: "127.0.0.1:1"}
	if _, err := b.Eval(t.Context(), call); err == nil {
		t.Error("somebody was there")
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := b.Eval(t.Context(), call); err == nil {
		t.Error("a renewal after Close succeeded")
	}
}

// TestRenewalClientWhileConnecting copies the options of the program's client while that connects, which changes them:
// for the race detector.
func TestRenewalClientWhileConnecting(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer func() { _ = rdb.Close() }()
	b, err := backend.NewRedis(rdb, nil)
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan error, 1)
	go func() { connected <- rdb.Ping(t.Context()).Err() }()
	time.Sleep(20 * time.Millisecond) // whatever tells that it has connected would tell the race detector that this comes first
	call := backend.Call{Script: backend.NewScript("none", "return 1"), Keys: []string{"k"}, Renew: true, SendSource: true, Node: rdb.Options().Addr}
	if _, err := b.Eval(t.Context(), call); err != nil {
		t.Error(err)
	}
	if err := <-connected; err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestRenewalsWhereConnectingTakesLong: while the round trips of a new connection take more than half of a renewal's time, renewals use the program's
// open connections. HELLO, CLIENT SETINFO and the script take one each.
func TestRenewalsWhereConnectingTakesLong(t *testing.T) {
	t.Parallel()
	for _, roundTrip := range []time.Duration{800 * time.Millisecond, 1200 * time.Millisecond} { // 2.5 and 1.7 of them are half of the time
		t.Run(roundTrip.String(), func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, redistest.Start(t).Addr())
			rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
			defer func() { _ = rdb.Close() }()
			b, err := backend.NewRedis(rdb, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			if err := rdb.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			p.SetRule(redistest.When(redistest.Down, redistest.Delay(roundTrip)))
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			call := backend.Call{Script: backend.NewScript("none", "return 1"), Keys: []string{"k"}, Renew: true, SendSource: true, Node: p.Addr()}
			if _, err := b.Eval(ctx, call); err != nil {
				t.Error(err)
			}
		})
	}
}
