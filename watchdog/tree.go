package watchdog

// tree keeps planned cohorts in the order of their renewals: a treap whose nodes are the cohorts themselves. Beside
// the order it knows, for every subtree, what the questions of the engine need to be answered in O(log n): how many
// cohorts, whether one has room, the earliest and latest renewal and the widest gap between two neighbours.
//
// A cohort stands in two trees at once, its group's ring and its partition's plan: slot says which links are used.
type tree struct {
	root *cohort
	slot int
}

// The two trees a planned cohort stands in.
const (
	inRing = iota
	inPlan
	trees
)

// links are a cohort's place in one tree and the sums over the subtree below it.
type links struct {
	parent, left, right *cohort
	size                int
	first, last, gap    int64
	roomy               bool
}

// firstDue and lastDue are the ends of the tree; never and 0 when it is empty.
func (t *tree) firstDue() int64 {
	if t.root == nil {
		return never
	}
	return t.root.links[t.slot].first
}

func (t *tree) lastDue() int64 {
	if t.root == nil {
		return 0
	}
	return t.root.links[t.slot].last
}

// nth is the cohort with k others before it; nil when there are not that many.
func (t *tree) nth(k int) *cohort {
	c := t.root
	for c != nil {
		l := &c.links[t.slot]
		before := 0
		if l.left != nil {
			before = l.left.links[t.slot].size
		}
		switch {
		case k < before:
			c = l.left
		case k == before:
			return c
		default:
			k -= before + 1
			c = l.right
		}
	}
	return nil
}

// around gives the renewals next to a time: the latest at or before it, the earliest after it; nil when there is none.
func (t *tree) around(at int64) (before, after *cohort) {
	for c := t.root; c != nil; {
		if c.due <= at {
			before, c = c, c.links[t.slot].right
		} else {
			after, c = c, c.links[t.slot].left
		}
	}
	return before, after
}

// latestWithRoom is the cohort with room that is renewed last, but not after by; nil when there is none.
func (t *tree) latestWithRoom(by int64) *cohort { return t.latestBelow(t.root, by) }

func (t *tree) latestBelow(c *cohort, by int64) *cohort {
	for c != nil {
		l := &c.links[t.slot]
		if !l.roomy || l.first > by {
			return nil
		}
		if c.due <= by {
			if found := t.latestBelow(l.right, by); found != nil {
				return found
			}
			if c.hasRoom() {
				return c
			}
		}
		c = l.left
	}
	return nil
}

// widestGap is the start and the width of the widest gap between neighbours; 0 with fewer than two.
func (t *tree) widestGap() (start, width int64) {
	for c := t.root; c != nil; {
		l := &c.links[t.slot]
		switch {
		case l.gap == 0:
			return c.due, 0
		case l.left != nil && l.left.links[t.slot].gap == l.gap:
			c = l.left
		case l.left != nil && c.due-l.left.links[t.slot].last == l.gap:
			return l.left.links[t.slot].last, l.gap
		case l.right != nil && l.right.links[t.slot].first-c.due == l.gap:
			return c.due, l.gap
		default:
			c = l.right
		}
	}
	return 0, 0
}

// insert adds a cohort at its due time, after those of the same time.
func (t *tree) insert(c *cohort) {
	c.links[t.slot] = links{}
	var parent *cohort
	at := &t.root
	for *at != nil {
		parent = *at
		if c.due < parent.due {
			at = &parent.links[t.slot].left
		} else {
			at = &parent.links[t.slot].right
		}
	}
	*at = c
	c.links[t.slot].parent = parent
	t.sum(c)
	for p := parent; p != nil && p.priority < c.priority; p = c.links[t.slot].parent {
		t.rotateUp(c)
	}
	t.sumUp(c.links[t.slot].parent)
}

// remove takes a cohort of the tree out of it.
func (t *tree) remove(c *cohort) {
	l := &c.links[t.slot]
	for l.left != nil || l.right != nil {
		child := l.left
		if child == nil || (l.right != nil && l.right.priority > child.priority) {
			child = l.right
		}
		t.rotateUp(child)
	}
	*t.ref(c) = nil
	t.sumUp(l.parent)
	*l = links{}
}

// ref is the pointer that leads to c: the root's or its parent's.
func (t *tree) ref(c *cohort) **cohort {
	p := c.links[t.slot].parent
	switch {
	case p == nil:
		return &t.root
	case p.links[t.slot].left == c:
		return &p.links[t.slot].left
	default:
		return &p.links[t.slot].right
	}
}

// rotateUp swaps c with its parent, keeping the order; the sums of both are right afterwards.
func (t *tree) rotateUp(c *cohort) {
	p := c.links[t.slot].parent
	pl, cl := &p.links[t.slot], &c.links[t.slot]
	*t.ref(p) = c
	cl.parent = pl.parent
	var inner *cohort
	if pl.left == c {
		inner = cl.right
		pl.left, cl.right = inner, p
	} else {
		inner = cl.left
		pl.right, cl.left = inner, p
	}
	if inner != nil {
		inner.links[t.slot].parent = p
	}
	pl.parent = c
	t.sum(p)
	t.sum(c)
}

// sum computes the sums of one cohort from its children.
func (t *tree) sum(c *cohort) {
	l := &c.links[t.slot]
	l.size, l.first, l.last, l.gap, l.roomy = 1, c.due, c.due, 0, c.hasRoom()
	if l.left != nil {
		s := &l.left.links[t.slot]
		l.size += s.size
		l.first = s.first
		l.gap = max(l.gap, s.gap, c.due-s.last)
		l.roomy = l.roomy || s.roomy
	}
	if l.right != nil {
		s := &l.right.links[t.slot]
		l.size += s.size
		l.last = s.last
		l.gap = max(l.gap, s.gap, s.first-c.due)
		l.roomy = l.roomy || s.roomy
	}
}

func (t *tree) sumUp(c *cohort) {
	for ; c != nil; c = c.links[t.slot].parent {
		t.sum(c)
	}
}
