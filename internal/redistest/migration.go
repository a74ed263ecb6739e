package redistest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Migration is the move of one hash slot from one primary to another. A test can stay in each state as long as it
// wants. From the start the source answers ASK for keys that it doesn't have. If only some keys of a multi-key command
// have moved, both answer TRYAGAIN (the target after ASKING). After Finish the source answers MOVED.
type Migration struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// Migrate begins to move a slot to another primary.
func (c *Cluster) Migrate(tb testing.TB, slot int, to *Server) *Migration {
	tb.Helper()
	from := c.Owner(tb, slot)
	// The target first: it must be ready when the source sends the first ASK.
	must(tb, to.do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.nodeID(tb)).Err())
	must(tb, from.do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.nodeID(tb)).Err())
	return &Migration{cluster: c, slot: slot, from: from, to: to}
}

// MoveKeys moves these keys, or without arguments all keys that the slot has now. A key that doesn't exist is no error.
//
// Keys of one Cluster are moved one call after the other. MIGRATE blocks its server until the target has answered:
// three at the same time, in a circle, would wait for each other until their timeout.
func (m *Migration) MoveKeys(tb testing.TB, keys ...string) {
	tb.Helper()
	if len(keys) == 0 {
		all, err := m.from.admin.ClusterGetKeysInSlot(context.Background(), m.slot, 1<<20).Result()
		must(tb, err)
		if len(all) == 0 {
			return
		}
		keys = all
	}
	args := []any{
		"MIGRATE", "127.0.0.1", m.to.port, "", 0, patience.Milliseconds(),
		"AUTH2", adminUser, m.to.cfg.adminPassword, "KEYS",
	}
	for _, k := range keys {
		args = append(args, k)
	}
	m.cluster.migration.Lock()
	defer m.cluster.migration.Unlock()
	must(tb, m.from.do(args...).Err())
}

// Finish moves the remaining keys and hands the slot over.
//
// Slots of one Cluster are handed over one after the other, and only when all nodes know the latest configuration
// epoch. The new owner of a slot takes the epoch after those that it knows. If the old owner has a higher one, of
// another slot, a message that it sent before it was told claims the slot back, and the new owner deletes the keys.
func (m *Migration) Finish(tb testing.TB) {
	tb.Helper()
	m.MoveKeys(tb)
	id := m.to.nodeID(tb)
	m.cluster.migration.Lock()
	defer m.cluster.migration.Unlock()
	must(tb, poll(func() error { return m.cluster.sameEpoch(tb) }))
	// The new owner comes first: otherwise nobody would own the slot for a moment. When it is told once more below, it
	// has told the others its epoch.
	for _, s := range append([]*Server{m.to, m.from}, m.cluster.running(tb)...) {
		// Only primaries are told. Replicas hear of the new owner from other nodes.
		if s.Info(tb, "replication")["role"] == "master" {
			must(tb, s.do("CLUSTER", "SETSLOT", m.slot, "NODE", id).Err())
		}
	}
}

// sameEpoch returns an error unless all nodes that run know the same latest epoch.
func (c *Cluster) sameEpoch(tb testing.TB) error {
	epochs := make(map[string]bool)
	for _, s := range c.running(tb) {
		text, err := s.do("CLUSTER", "INFO").Text()
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(text, "cluster_current_epoch:")
		epoch, _, _ := strings.Cut(rest, "\r")
		epochs[epoch] = true
	}
	if len(epochs) > 1 {
		return fmt.Errorf("redistest: the nodes know different epochs: %v", slices.Sorted(maps.Keys(epochs)))
	}
	return nil
}

// MoveSlot moves a slot to another primary: with CLUSTER MIGRATESLOTS if the servers have it, as Valkey 9 does,
// otherwise with a Migration. It returns when every running node reports the new owner.
func (c *Cluster) MoveSlot(tb testing.TB, slot int, to *Server) {
	tb.Helper()
	from := c.Owner(tb, slot)
	err := from.do("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to.nodeID(tb)).Err()
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "unknown subcommand") {
		c.Migrate(tb, slot, to).Finish(tb)
		err = nil
	}
	must(tb, err)
	awaitPrimary(tb, c.running(tb), from, c.ownerOf(slot), justWait)
}
