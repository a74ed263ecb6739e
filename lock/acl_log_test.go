package lock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A subscription that was silent for 3 s is sent PING. Where the user may not send PING, the subscription counts as
// down, and the client subscribes again after 3 s more.
func TestACLNeedsPing(t *testing.T) {
	t.Parallel()
	rules := strings.Fields(appACL)
	for title, left := range map[string][]string{
		"all rules":     rules,
		"without +ping": slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == "+ping" }),
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			admin := srv.Client(t)
			u := newACLUser(t, "app", []*redistest.Server{srv}, left)
			l := try(t, newScope(t).open(t, admin, lock.WithLease(far)).Mutex("app:1"))
			next := begin(t.Context(), u.client().Mutex("app:1"))
			listenedTo(t, admin, "app:1")
			pings := srv.Commands(t)["ping"]
			if len(left) == len(rules) {
				eventually(t, patience, func() bool { return srv.Commands(t)["ping"] >= pings+2 }) // the first was answered
				if err := u.counted(nil); err != nil || u.sum(t, telemetry.MetricPubSubReconnects) != 0 {
					t.Errorf("the subscription is made anew: %v", err)
				}
			} else {
				eventually(t, patience, func() bool {
					refused := u.sum(t, telemetry.MetricErrors, "lockdog.operation=subscribe", "error.type=acl")
					return refused >= 1 && u.sum(t, telemetry.MetricPubSubConnected) == 0
				})
				eventually(t, patience, func() bool { return u.sum(t, telemetry.MetricPubSubReconnects) >= 1 })
				listenedTo(t, admin, "app:1")
			}
			free(t, l)
			free(t, granted(t, next)) // by a message
		})
	}
}

// A client that may not use the set of those who wait tries it once a minute, whatever it waits for meanwhile.
func TestACLLogHasWhatEachClientTriedOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	u := newACLUser(t, "app", []*redistest.Server{srv}, strings.Fields(appACL))
	u.patient()
	admin := srv.Client(t)
	h := newScope(t).open(t, admin, lock.WithLease(far))
	began, want := time.Now(), map[string]int64{}
	for i := range 2 {
		c := u.client(lock.WithLease(time.Minute), lock.WithWaitGraph(0)) // who isn't answered within a lease asks again
		for turn := range 3 {
			name := fmt.Sprintf("app:%d-%d", i, turn)
			if turn == 0 {
				want["lockdog_wait:{"+name+"}"] = 1
			}
			l := try(t, h.Mutex(name))
			next := begin(u.ctx, c.Mutex(name))
			listenedTo(t, admin, name)
			asleep(t, c, 1)
			free(t, l)
			free(t, granted(t, next))
		}
	}
	log, err := admin.ACLLog(t.Context(), 100).Result()
	must(t, "ACL LOG", err)
	got := map[string]int64{}
	for _, e := range log {
		got[e.Object] += e.Count
	}
	delete(got, "client|setinfo") // go-redis's, of servers from 7.2 on
	perClient := int64(time.Since(began)/time.Minute) + 1
	total := int64(0)
	for object, n := range got {
		if total += n; !strings.HasPrefix(object, "lockdog_wait:{app:") {
			t.Errorf("ACL LOG has %q", object)
		}
	}
	for object := range want {
		if got[object] < 1 || total > perClient*int64(len(want)) {
			t.Errorf("ACL LOG has %v, want %v", got, want)
		}
	}
}
