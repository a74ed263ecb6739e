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
// A sample has the stack of the code that called Lock, Do or another method: it begins with the innermost function
// outside lockdog. Its values are:
//
//	hold/nanoseconds     time that locks were held while others waited: the default
//	holds/count          holds during which others waited
//	wait/nanoseconds     time of the waits for locks that couldn't be taken at once
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
	p := newProfile()
	add(p, false, clients)
	return write(w, p)
}

// WriteDelta waits for d and then writes, like Write, what was recorded in that time. If ctx ends earlier, it writes
// nothing and returns the cause.
func WriteDelta(ctx context.Context, w io.Writer, d time.Duration, clients ...*lock.Client) error {
	p := newProfile()
	add(p, true, clients)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	add(p, false, clients)
	p.DurationNanos = d.Nanoseconds()
	return write(w, p)
}

func newProfile() *profile.Profile {
	// All locations are symbolized. The mapping says so; without it pprof would look for the program's symbols.
	program := &profile.Mapping{
		ID: 1, HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true,
	}
	p := &profile.Profile{
		Mapping: []*profile.Mapping{program}, DefaultSampleType: defaultValue,
		PeriodType: &profile.ValueType{Type: "acquires", Unit: "count"}, Period: 1,
		TimeNanos: time.Now().UnixNano(),
	}
	for _, v := range values {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: v.name, Unit: v.unit})
	}
	return p
}

// write writes a profile. Equal stacks of several clients become one sample, with the sums of their values.
func write(w io.Writer, p *profile.Profile) error {
	p, err := profile.Merge([]*profile.Profile{p})
	if err == nil {
		err = p.CheckValid() // until here an error is a bug in this package
	}
	if err == nil {
		err = p.Write(w)
	}
	if err != nil {
		return fmt.Errorf("lockprofile: %w", err)
	}
	return nil
}

// add adds what clients have recorded; with before, it subtracts the values that grow instead.
func add(p *profile.Profile, before bool, clients []*lock.Client) {
	for _, client := range clients {
		c := client.Contention()
		if c.Rate == 0 {
			continue
		}
		p.Period = max(p.Period, int64(c.Rate))
		p.DurationNanos = max(p.DurationNanos, c.Time.Sub(c.Since).Nanoseconds())
		for i := range c.Stacks {
			addStack(p, before, &c.Stacks[i])
		}
	}
}

func addStack(p *profile.Profile, before bool, s *lock.ContentionStack) {
	sample := &profile.Sample{Value: make([]int64, len(values))}
	frames := s.Frames
	if frames == nil {
		frames = []runtime.Frame{{Function: otherStacks}}
	} else if s.Group != "" {
		sample.Label = map[string][]string{"group": {printable(s.Group)}, "kind": {printable(s.Kind)}}
	}
	for _, f := range frames {
		id := uint64(len(p.Location) + 1)
		fn := &profile.Function{ID: id, Name: f.Function, SystemName: f.Function, Filename: f.File}
		l := &profile.Location{
			ID: id, Mapping: p.Mapping[0], Line: []profile.Line{{Function: fn, Line: int64(f.Line)}},
		}
		p.Function, p.Location = append(p.Function, fn), append(p.Location, l)
		sample.Location = append(sample.Location, l)
	}
	for i, v := range values {
		switch {
		case !before:
			sample.Value[i] = v.of(s)
		case v.grows:
			sample.Value[i] = -v.of(s)
		}
	}
	p.Sample = append(p.Sample, sample)
}

// printable returns a text as a label. It quotes a text with unprintable characters such as line breaks, because pprof
// prints labels in lines.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}
