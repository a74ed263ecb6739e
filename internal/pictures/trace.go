package main

import (
	"cmp"
	"slices"
	"strings"
)

// trace is a trace of Jaeger's API. Times are in microseconds.
type trace struct {
	TraceID string
	Spans   []*span
}

type span struct {
	SpanID, OperationName string
	StartTime, Duration   int64
	References            []reference
	Tags                  []struct {
		Key   string
		Value any
	}
}

type reference struct{ RefType, TraceID, SpanID string }

func (s *span) tag(key string) any {
	for _, t := range s.Tags {
		if t.Key == key {
			return t.Value
		}
	}
	return nil
}

func (s *span) failed() bool { return s.tag("error") == true }

func (s *span) is(what string) bool { return strings.HasPrefix(s.OperationName, what+" ") }

// parent returns the id of the span's parent in this trace, "" without one.
func (t *trace) parent(s *span) string {
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" && r.TraceID == t.TraceID {
			return r.SpanID
		}
	}
	return ""
}

// linked reports whether a span has a link to another trace.
func (t *trace) linked(s *span) bool {
	return slices.ContainsFunc(s.References, func(r reference) bool { return r.TraceID != t.TraceID })
}

// choose returns the shortest trace that has a wait for another holder, a renewal that failed and one that succeeded later, and a release.
func choose(traces []*trace) (best *trace) {
	for _, t := range traces {
		waited, renewed, failed, released := false, 0, 0, false
		for _, s := range t.Spans {
			switch {
			case s.is("acquire"):
				waited = s.Duration > 1e6 && t.linked(s)
			case s.is("renew") && s.failed():
				failed++
			case s.is("renew"):
				renewed++
			case s.is("release"):
				released = !s.failed()
			}
		}
		if waited && failed > 0 && renewed >= 5 && released && (best == nil || len(t.Spans) < len(best.Spans)) {
			best = t
		}
	}
	return best
}

// row is a span and its depth in the tree.
type row struct {
	*span
	depth int
}

// rows returns the spans as a tree, each below its parent, in the order in which they began.
func (t *trace) rows() (all []row) {
	children := map[string][]*span{}
	for _, s := range t.Spans {
		children[t.parent(s)] = append(children[t.parent(s)], s)
	}
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		slices.SortFunc(children[parent], func(a, b *span) int { return cmp.Compare(a.StartTime, b.StartTime) })
		for _, s := range children[parent] {
			all = append(all, row{s, depth})
			walk(s.SpanID, depth+1)
		}
	}
	walk("", 0)
	return all
}
