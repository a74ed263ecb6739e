package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/leader"
	"github.com/lockdog/lockdog/lock/locktest"
)

var errShutdown = errors.New("the program ends")

// A process that works while it leads, tells whether it does, and is restarted when its work doesn't stop in time.
func Example() {
	srv := locktest.New(nil, lock.WithClientID("pod-0"), lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	ctx, shutdown := context.WithCancelCause(context.Background())

	elector := leader.New(srv.Client().Mutex("leader:reports"),
		leader.OnNewLeader(func(id string) { fmt.Println("new leader:", id) }),
		leader.OnDeposed(func(cause error) { fmt.Println("deposed:", cause) }),
		leader.WithLogger(slog.New(slog.DiscardHandler)))
	http.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		if err := elector.Check(30 * time.Second); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})

	err := elector.Run(ctx, func(ctx context.Context) error {
		fmt.Println("leads:", elector.IsLeader(), "with a token:", leader.Token(ctx) > 0)
		shutdown(errShutdown) // somebody stops the program
		<-ctx.Done()          // all work looks at ctx
		return nil
	})
	fmt.Println(err, "- leads:", elector.IsLeader())

	// Unordered output:
	// leads: true with a token: true
	// new leader: pod-0
	// deposed: the program ends
	// the program ends - leads: false
}
