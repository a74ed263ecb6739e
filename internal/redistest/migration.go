package redistest

import (
	"context"
	"errors"
	"fmt"
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
	m := &Migration{cluster: c, slot: slot, from: c.Owner(tb, slot), to: to}
	fromID, toID := m.from.nodeID(tb), to.nodeID(tb)
	ctx, cancel := adminContext()
	defer cancel()
	// The target first: it must be ready when the source sends the first ASK.
	err := to.admin.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err()
	if err == nil {
		err = m.from.admin.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err()
	}
	if err != nil {
		tb.Fatalf("redistest: begin to migrate slot %d: %v", slot, err)
	}
	return m
}

// MoveKeys moves these keys, or without arguments all keys that the slot has now. A key that doesn't exist is no error.
func (m *Migration) MoveKeys(tb testing.TB, keys ...string) {
	tb.Helper()
	ctx, cancel := adminContext()
	defer cancel()
	if len(keys) == 0 {
		all, err := m.from.admin.ClusterGetKeysInSlot(ctx, m.slot, 1<<20).Result()
		if err != nil {
			tb.Fatalf("redistest: keys of slot %d: %v", m.slot, err)
		}
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
	if err := m.from.admin.Do(ctx, args...).Err(); err != nil {
		tb.Fatalf("redistest: migrate keys of slot %d: %v", m.slot, err)
	}
}

// Finish moves the remaining keys and hands the slot over.
func (m *Migration) Finish(tb testing.TB) {
	tb.Helper()
	m.MoveKeys(tb)
	id := m.to.nodeID(tb)
	ctx, cancel := adminContext()
	defer cancel()
	// The new owner comes first: otherwise nobody would own the slot for a moment.
	var errs []error
	for _, s := range append([]*Server{m.to, m.from}, m.cluster.running(tb)...) {
		// Only primaries are told. Replicas hear of the new owner from other nodes.
		if info, err := s.info(ctx, "replication"); err != nil || info["role"] != "master" {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, s.admin.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", id).Err())
	}
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("redistest: finish migrating slot %d: %v", m.slot, err)
	}
}

// MoveSlot moves a slot to another primary: with CLUSTER MIGRATESLOTS if the servers have it, as Valkey 9 does,
// otherwise with a Migration. It returns when every running node reports the new owner.
func (c *Cluster) MoveSlot(tb testing.TB, slot int, to *Server) {
	tb.Helper()
	if !c.migrateAtOnce(tb, slot, to) {
		c.Migrate(tb, slot, to).Finish(tb)
	}
	await(tb, "a slot's new owner", c.running(tb), func(ctx context.Context, s *Server) error {
		owner, err := c.ownerSeenBy(ctx, s, slot)
		if err == nil && owner != to {
			err = fmt.Errorf("slot %d is still served by %d", slot, owner.port)
		}
		return err
	})
}

// migrateAtOnce moves a slot with CLUSTER MIGRATESLOTS. It reports false if the servers don't have that command.
func (c *Cluster) migrateAtOnce(tb testing.TB, slot int, to *Server) bool {
	tb.Helper()
	from, id := c.Owner(tb, slot), to.nodeID(tb)
	ctx, cancel := adminContext()
	defer cancel()
	err := from.admin.Do(ctx, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id).Err()
	if err != nil && !strings.Contains(strings.ToLower(err.Error()), "unknown subcommand") {
		tb.Fatalf("redistest: migrate slot %d at once: %v", slot, err)
	}
	return err == nil
}
