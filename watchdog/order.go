package watchdog

import "slices"

// order has planned cohorts in the order of their renewals. A million leases have 4,000 cohorts: to read all takes
// microseconds.
type order []*cohort

// firstDue returns when the first cohort is renewed; never: there is none.
func (o order) firstDue() int64 {
	if len(o) == 0 {
		return never
	}
	return o[0].due
}

// lastDue returns when the last cohort is renewed. There must be one.
func (o order) lastDue() int64 { return o[len(o)-1].due }

// nth returns the cohort with k others before it; nil: there are no more than k.
func (o order) nth(k int) *cohort {
	if k >= len(o) {
		return nil
	}
	return o[k]
}

// countUntil returns how many cohorts are renewed at or before a time.
func (o order) countUntil(at int64) int {
	n, _ := slices.BinarySearchFunc(o, at, func(c *cohort, at int64) int {
		if c.due <= at {
			return -1
		}
		return 1
	})
	return n
}

// latestWithRoom returns the cohort with room that is renewed last, but not after by; nil: none.
func (o order) latestWithRoom(by int64) *cohort {
	for _, c := range slices.Backward(o[:o.countUntil(by)]) {
		if c.hasRoom() {
			return c
		}
	}
	return nil
}

// widestGap returns the start and the width of the widest gap between neighbours; both are 0 if there is no gap.
func (o order) widestGap() (start, width int64) {
	for i := 1; i < len(o); i++ {
		if gap := o[i].due - o[i-1].due; gap > width {
			start, width = o[i-1].due, gap
		}
	}
	return start, width
}

// insert adds a cohort, after those with the same due time.
func (o *order) insert(c *cohort) { *o = slices.Insert(*o, o.countUntil(c.due), c) }

// remove removes a cohort. Its due time must not have changed since insert.
func (o *order) remove(c *cohort) {
	i := o.countUntil(c.due - 1)
	i += slices.Index((*o)[i:], c)
	*o = slices.Delete(*o, i, i+1)
}
