package main

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// trace is one as Jaeger's API gives it. Times are in microseconds.
type trace struct {
	TraceID string
	Spans   []*span
}

type span struct {
	SpanID, OperationName string
	StartTime, Duration   int64
	References            []struct{ RefType, TraceID, SpanID string }
	Tags                  []struct {
		Key   string
		Value any
	}
}

func read(r io.Reader) ([]*trace, error) {
	var answer struct{ Data []*trace }
	err := json.NewDecoder(r).Decode(&answer)
	return answer.Data, err
}

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

// parent is the id of the span's parent in this trace.
func (t *trace) parent(s *span) string {
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" && r.TraceID == t.TraceID {
			return r.SpanID
		}
	}
	return ""
}

// linked reports whether a span has a link into another trace.
func (t *trace) linked(s *span) bool {
	for _, r := range s.References {
		if r.TraceID != t.TraceID {
			return true
		}
	}
	return false
}

// choose returns the shortest of the stories that have it all: a wait for somebody else, a renewal that failed and was made up
// for, and a release.
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

// row is a span and how deep it lies.
type row struct {
	*span
	depth int
}

// rows are the spans as a tree, each below its parent, in the order they began.
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
