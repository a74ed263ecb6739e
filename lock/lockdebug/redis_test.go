package lockdebug_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// A waiter that Redis doesn't answer says so.
func TestWaiterWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		p := redistest.NewProxy(t, srv.Addr())
		c, err := lock.New(srv.Client(t, func(o *redis.Options) { o.Addr = p.Addr() }), lock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Client(t).HSet(t.Context(), "job", "java:1", 1).Err(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Mutex("job").Lock(ctx) // never gets in
		}()
		t.Cleanup(func() {
			cancel()
			<-done
			_ = c.Close(context.Background())
		})
		r := &rig{t: t, page: lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{c}})}
		until := func(shows func(row) bool) {
			t.Helper()
			for {
				items := r.json("").Waiting.Items
				if len(items) == 1 && shows(items[0]) {
					return
				}
				if ctx.Err() != nil {
					t.Fatalf("waiting: %+v", items)
				}
				time.Sleep(time.Millisecond)
			}
		}
		until(func(w row) bool { return w.WaitsFor == "java:1" && w.LastError == "" })
		p.Refuse(t)
		p.CutAll()
		until(func(w row) bool {
			return strings.Contains(w.LastError, "connection refused") && w.LastErrorAt.After(w.FailingSince)
		})
		w := r.json("").Waiting.Items[0]
		if w.Kind != "mutex" || w.Node != p.Addr() || w.FailingFor <= 0 || !w.FailingSince.After(w.Since) {
			t.Errorf("waiting: %+v", w)
		}
		p.Accept(t)
		time.Sleep(2 * time.Second) // for go-redis, which dials each second until it gets through
	})
}
