// Package lockprofile writes the contention profile of clients in pprof's format: which lines of code wait for locks,
// and which hold locks while others wait. `go tool pprof`, its flame graph and continuous profilers can read it.
//
//	http.HandleFunc("/debug/locks/profile", func(w http.ResponseWriter, _ *http.Request) {
//		_ = lockprofile.Write(w, locks)
//	})
//
// The debug page of package lockdebug serves it too. [lock.WithContentionProfile] sets how much is recorded.
//
// # Samples
//
// A sample has the stack of the code that called Lock, Do or another method, without lockdog's own functions. Its
// values are:
//
//	hold/nanoseconds     time that locks were held while others waited: the default
//	holds/count          holds during which others waited
//	wait/nanoseconds     time of the waits for locks that others held
//	waits/count          waits
//	waiting/count        waiting now
//	held/count           held now, whether others wait or not
//
// With -sample_index=wait pprof shows the waits. The first four values are totals since the client was made; WriteDelta
// writes by how much they grew in some time. A sample has the labels group and kind, unless it is of the stacks that a
// client had no room to record.
package lockprofile

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/pprof/profile"

	"github.com/lockdog/lockdog/lock"
)

// values has the sample types of the profile, and the source of each.
var values = []struct {
	name, unit string
	grows      bool
	of         func(*lock.ContentionStack) int64
}{
	{"waits", "count", true, func(s *lock.ContentionStack) int64 { return s.Waits }},
	{"wait", "nanoseconds", true, func(s *lock.ContentionStack) int64 { return s.Wait.Nanoseconds() }},
	{"holds", "count", true, func(s *lock.ContentionStack) int64 { return s.Holds }},
	{"hold", "nanoseconds", true, func(s *lock.ContentionStack) int64 { return s.Hold.Nanoseconds() }},
	{"waiting", "count", false, func(s *lock.ContentionStack) int64 { return s.Waiting }},
	{"held", "count", false, func(s *lock.ContentionStack) int64 { return s.Held }},
}

// defaultValue is the sample type that pprof shows by default: the holds that make others wait, as in Go's mutex
// profile.
const defaultValue = "hold"

// otherStacks is a function name: its sample has the stacks that a client had no room to record.
const otherStacks = "lockdog: other stacks"

// Write writes what the clients have recorded, merged and compressed with gzip. A client may be nil, closed or without
// a profile.
func Write(w io.Writer, clients ...*lock.Client) error {
	b := newBuilder()
	for _, c := range clients {
		b.add(c.Contention(), false)
	}
	return b.write(w)
}

// WriteDelta waits for d and then writes, like Write, what was recorded in that time. If ctx ends earlier, it writes
// nothing and returns the cause.
func WriteDelta(ctx context.Context, w io.Writer, d time.Duration, clients ...*lock.Client) error {
	b := newBuilder()
	for _, c := range clients {
		b.add(c.Contention(), true)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, c := range clients {
		b.add(c.Contention(), false)
	}
	b.p.DurationNanos = d.Nanoseconds()
	b.p.Sample = slices.DeleteFunc(b.p.Sample, func(s *profile.Sample) bool {
		return !slices.ContainsFunc(s.Value, func(v int64) bool { return v != 0 })
	})
	b.p = b.p.Compact()
	return b.write(w)
}

func (b *builder) write(w io.Writer) error {
	if err := b.p.CheckValid(); err != nil { // a bug in this package
		return fmt.Errorf("lockprofile: %w", err)
	}
	if err := b.p.Write(w); err != nil {
		return fmt.Errorf("lockprofile: %w", err)
	}
	return nil
}

// builder merges the profiles of several clients.
type builder struct {
	p         *profile.Profile
	functions map[functionKey]*profile.Function
	locations map[runtimeLine]*profile.Location
	samples   map[string]*profile.Sample
}

type functionKey struct{ name, file string }

type runtimeLine struct {
	functionKey
	line int
}

func newBuilder() *builder {
	// All locations are symbolized. The mapping says so; without it pprof would look for the program's symbols.
	program := &profile.Mapping{
		ID: 1, HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true,
	}
	b := &builder{
		p: &profile.Profile{
			Mapping: []*profile.Mapping{program}, DefaultSampleType: defaultValue,
			PeriodType: &profile.ValueType{Type: "acquires", Unit: "count"}, Period: 1,
			TimeNanos: time.Now().UnixNano(),
		},
		functions: map[functionKey]*profile.Function{}, locations: map[runtimeLine]*profile.Location{},
		samples: map[string]*profile.Sample{},
	}
	for _, v := range values {
		b.p.SampleType = append(b.p.SampleType, &profile.ValueType{Type: v.name, Unit: v.unit})
	}
	return b
}

// add adds what a client has recorded; with before, it subtracts the values that grow instead.
func (b *builder) add(c lock.Contention, before bool) {
	if c.Rate == 0 {
		return
	}
	b.p.Period = max(b.p.Period, int64(c.Rate))
	b.p.DurationNanos = max(b.p.DurationNanos, c.Time.Sub(c.Since).Nanoseconds())
	for i := range c.Stacks {
		b.stack(&c.Stacks[i], before)
	}
}

// stack adds or subtracts a stack. Equal stacks of several clients share one sample.
func (b *builder) stack(s *lock.ContentionStack, before bool) {
	frames := s.Frames
	if frames == nil {
		frames = []runtime.Frame{{Function: otherStacks}}
	}
	group, kind := printable(s.Group), printable(s.Kind)
	if s.Frames == nil {
		group, kind = "", ""
	}
	locations := make([]*profile.Location, len(frames))
	key := strings.Builder{}
	key.WriteString(group + "\n" + kind)
	for i := range frames {
		locations[i] = b.location(&frames[i])
		key.WriteString("\n" + strconv.FormatUint(locations[i].ID, 10))
	}
	sample := b.samples[key.String()]
	if sample == nil {
		sample = &profile.Sample{Location: locations, Value: make([]int64, len(values))}
		if group != "" {
			sample.Label = map[string][]string{"group": {group}, "kind": {kind}}
		}
		b.samples[key.String()] = sample
		b.p.Sample = append(b.p.Sample, sample)
	}
	for i, v := range values {
		switch {
		case !before:
			sample.Value[i] += v.of(s)
		case v.grows:
			sample.Value[i] -= v.of(s)
		}
	}
}

func (b *builder) location(f *runtime.Frame) *profile.Location {
	key := runtimeLine{functionKey{f.Function, f.File}, f.Line}
	l := b.locations[key]
	if l != nil {
		return l
	}
	fn := b.functions[key.functionKey]
	if fn == nil {
		fn = &profile.Function{
			ID: uint64(len(b.p.Function) + 1), Name: f.Function, SystemName: f.Function, Filename: f.File,
		}
		b.functions[key.functionKey] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	l = &profile.Location{
		ID: uint64(len(b.p.Location) + 1), Mapping: b.p.Mapping[0],
		Line: []profile.Line{{Function: fn, Line: int64(f.Line)}},
	}
	b.locations[key] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

// printable returns a text as a label. It quotes a text with unprintable characters such as line breaks, because pprof
// prints labels in lines.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}
