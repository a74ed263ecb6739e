package lock_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Inspect of a Multi has a holder for each name, ForceUnlock takes each away, and the audit says who called it.
func TestMultiInspectAndForceUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		holder, _ := c.client(lock.WithClientID("holder"))
		operator, s := c.client(lock.WithClientID("operator"))
		l := try(t, holder.Multi([]string{"stock", "order"}))
		m := operator.Multi([]string{"order", "payment", "stock"})
		control := c.key("lockdog:control:" + l.Owner()[:strings.LastIndexByte(l.Owner(), '-')])
		eventually(t, patience, func() bool { return c.rdb.PubSubNumSub(t.Context(), control).Val()[control] == 1 })

		found, err := m.Inspect(t.Context())
		must(t, "Inspect", err)
		if len(found) != 3 || found["payment"].Held || found["order"].ClientID != "holder" || found["stock"].Token != l.Tokens()["stock"] {
			t.Errorf("Inspect says %+v", found)
		}
		was, err := m.ForceUnlock(t.Context())
		if must(t, "ForceUnlock", err); !was {
			t.Error("nothing was held")
		}
		mustBeLost(t, l, lock.CauseForced)
		records := s.records(t, telemetry.LogForced)
		if len(records) != 2 {
			t.Errorf("%d names were taken away, by the log, want 2: %v", len(records), records)
		}
		for _, r := range records {
			if !strings.Contains(r["caller"].(string), "TestMultiInspectAndForceUnlock") {
				t.Errorf("the caller is %v", r["caller"])
			}
		}
		if was, err = m.ForceUnlock(t.Context()); was || err != nil {
			t.Errorf("ForceUnlock of what is free: %v, %v", was, err)
		}
	})
}

// Inspect of a Quorum's lock has a holder for each node that answers, and ForceUnlock frees it there; both name the node that doesn't.
func TestQuorumInspectAndForceUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		l := try(t, ns.quorum(lock.WithLease(far)).Mutex("job"))
		operator := ns.quorum(lock.WithClientID("operator"), lock.WithLease(far)).Mutex("job")
		eventually(t, patience, func() bool { return ns.held("job") == 3 })

		found, err := operator.Inspect(t.Context())
		must(t, "Inspect", err)
		owners := ns.holders("job")
		for i, w := range ns.wires {
			if h := found[w.proxy.Addr()]; h.Owner != owners[i] {
				t.Errorf("at %s: %+v, want the owner %s", w.proxy.Addr(), h, owners[i])
			}
		}

		down := ns.wires[2].proxy
		down.Refuse(t)
		down.CutAll()
		found, err = operator.Inspect(t.Context())
		if err == nil || !strings.Contains(err.Error(), down.Addr()) || !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("Inspect with a node down: %v", err)
		}
		if _, ok := found[down.Addr()]; ok || len(found) != 2 {
			t.Errorf("Inspect with a node down has %v", slices.Collect(maps.Keys(found)))
		}
		was, err := operator.ForceUnlock(t.Context())
		if err == nil || !strings.Contains(err.Error(), down.Addr()) || !was {
			t.Errorf("ForceUnlock with a node down: %v, %v", was, err)
		}
		await(t, "Ended", l.Ended())
		mustMatch(t, l.Err(), lock.ErrLost)
		if owners := ns.holders("job"); owners[0] != "" || owners[1] != "" {
			t.Errorf("it is held by %v", owners)
		}
	})
}

// A ForceUnlock whose answer is lost isn't repeated: it would take the lock from the next holder, too.
func TestForceUnlock_LostReply(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Mutex", "FairMutex", "RWMutex"} {
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			var lose atomic.Bool
			var next *lock.Lease
			of := func(c *lock.Client) interface {
				lock.Locker
				ForceUnlock(context.Context) (bool, error)
			} {
				switch kind {
				case "FairMutex":
					return c.FairMutex("job")
				case "RWMutex":
					return c.RWMutex("job")
				}
				return c.Mutex("job")
			}
			holder := open(t, srv.Client(t))
			c := openTapped(t, srv, fakeredis.Tap{Down: func(cmd redis.Cmder) error {
				if isEval(cmd) && cmd.Err() == nil && lose.Swap(false) {
					next = try(t, of(holder))
					return io.EOF
				}
				return nil
			}})
			_ = try(t, of(holder))
			lose.Store(true)
			_, err := of(c).ForceUnlock(t.Context())
			mustMatch(t, err, lock.ErrUnavailable)
			free(t, next)
		})
	}
}
