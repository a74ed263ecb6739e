package report

import (
	"fmt"
	"strconv"

	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// tile is one figure in large, at the top of the page.
type tile struct{ Head, Figure, Note string }

// Thousands writes a number with commas.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count writes large numbers whole and small ones with what matters of them.
func count(f Figure, unit string) string {
	if f >= 100 {
		return Thousands(int(f+.5)) + unit
	}
	return Text(f, "%.3g") + unit
}

// tiles are about the run with the most locks.
func (rep *Report) tiles() []tile {
	var ours, classic *Row
	for i := range rep.Rows {
		r := &rep.Rows[i]
		switch {
		case r.Mode == wire.Batched && (ours == nil || r.Locks > ours.Locks):
			ours = r
		case r.Mode == wire.PerLock && (classic == nil || r.Locks > classic.Locks):
			classic = r
		}
	}
	if ours == nil {
		return nil
	}
	if classic != nil && classic.Locks != ours.Locks {
		classic = nil
	}
	than := func(f func(*Row) string) string {
		if classic == nil {
			return Thousands(ours.Locks) + " locks"
		}
		return fmt.Sprintf("for %s locks; %s with a watchdog per lock", Thousands(ours.Locks), f(classic))
	}
	calls := func(r *Row) string { return count(r.Calls, "") }
	peak := func(r *Row) string { return count(r.Peak, "") }
	memory := func(r *Row) string { return count(r.HeapPer+max(r.StackPer, 0), " B") }
	lost := 0.0
	for _, r := range rep.Rows {
		if r.Mode == wire.Batched {
			lost += float64(r.Losses)
		}
	}
	tiles := []tile{
		{"calls a second", calls(ours), than(calls)},
		{"calls in the worst 100 ms", peak(ours), than(peak)},
		{"memory per lock", memory(ours), than(memory)},
		{"locks lost", fmt.Sprintf("%.0f", lost), "in all runs with batches"},
	}
	if ours.LatencyP99.Known() {
		p99 := func(r *Row) string { return Text(r.LatencyP99, "%.2f ms") }
		tiles = append(tiles, tile{"p99 of everybody else", p99(ours), than(p99)})
	}
	return tiles
}
