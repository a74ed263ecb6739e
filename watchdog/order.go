package watchdog

import "slices"

// order is planned cohorts in the order of their renewals. They are few beside
// their leases, 4,000 for a million: looking at each takes microseconds.
type order []*cohort

// firstDue and lastDue are its ends; never and 0 when it is empty.
func (o order) firstDue() int64 {
	if len(o) == 0 {
		return never
	}
	return o[0].due
}

func (o order) lastDue() int64 {
	if len(o) == 0 {
		return 0
	}
	return o[len(o)-1].due
}

// nth is the cohort with k others before it; nil when there are not that many.
func (o order) nth(k int) *cohort {
	if k >= len(o) {
		return nil
	}
	return o[k]
}

// until is how many are renewed at or before a time.
func (o order) until(at int64) int {
	n, _ := slices.BinarySearchFunc(o, at, func(c *cohort, at int64) int {
		if c.due <= at {
			return -1
		}
		return 1
	})
	return n
}

// around gives the renewals next to a time: the latest at or before it, the
// earliest after it; nil when there is none.
func (o order) around(at int64) (before, after *cohort) {
	n := o.until(at)
	if n > 0 {
		before = o[n-1]
	}
	return before, o.nth(n)
}

// latestWithRoom is the cohort with room that is renewed last, but not after by;
// nil when there is none.
func (o order) latestWithRoom(by int64) *cohort {
	for _, c := range slices.Backward(o[:o.until(by)]) {
		if c.hasRoom() {
			return c
		}
	}
	return nil
}

// widestGap is the start and the width of the widest gap between neighbours; 0
// with fewer than two.
func (o order) widestGap() (start, width int64) {
	for i := 1; i < len(o); i++ {
		if gap := o[i].due - o[i-1].due; gap > width {
			start, width = o[i-1].due, gap
		}
	}
	return start, width
}

// insert adds a cohort at its due time, after those of the same time.
func (o *order) insert(c *cohort) { *o = slices.Insert(*o, o.until(c.due), c) }

// remove takes out a cohort, whose due time is that of its insert.
func (o *order) remove(c *cohort) {
	i := o.until(c.due - 1)
	i += slices.Index((*o)[i:], c)
	*o = slices.Delete(*o, i, i+1)
}
