package lock_test

import (
	"testing"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// openTapped returns a client of the fake, whose renewals go through the tap, too. The test's end closes it, and abandons what it
// still holds.
func openTapped(t *testing.T, srv *redistest.Fake, tap fakeredis.Tap, opts ...lock.Option) *lock.Client {
	t.Helper()
	rdb := srv.Client(t)
	rdb.AddHook(tap)
	c, err := lock.New(rdb, append([]lock.Option{lock.WithLogger(silent), lock.WithRenewalClient(rdb)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(c) })
	return c
}
