package lockprofile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockprofile"
	"github.com/lockdog/lockdog/lock/locktest"
)

func newClient(t *testing.T, opts ...lock.Option) *lock.Client {
	return locktest.New(t, append([]lock.Option{lock.WithContentionProfile(1), lock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...).Client()
}

func written(t *testing.T, clients ...*lock.Client) *profile.Profile {
	t.Helper()
	var b bytes.Buffer
	if err := lockprofile.Write(&b, clients...); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// value is a sample's value of a type.
func value(t *testing.T, p *profile.Profile, s *profile.Sample, name string) int64 {
	t.Helper()
	for i, st := range p.SampleType {
		if st.Type == name {
			return s.Value[i]
		}
	}
	t.Fatalf("no %s among %v", name, p.SampleType)
	return 0
}

// contend holds a lock for a second, for which another caller waits.
func contend(t *testing.T, m *lock.Mutex) {
	t.Helper()
	l, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }) }()
	time.Sleep(time.Second)
	if err := errors.Join(l.Release(t.Context()), <-done); err != nil {
		t.Fatal(err)
	}
}

func TestProfileOfSeveralClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := []*lock.Client{newClient(t), nil, newClient(t), newClient(t, lock.WithContentionProfile(0))}
		for _, c := range clients {
			if c != nil {
				contend(t, c.Mutex("orders:1"))
			}
		}
		p := written(t, clients...)
		var types []string
		for _, st := range p.SampleType {
			types = append(types, st.Type+"/"+st.Unit)
		}
		if got := strings.Join(types, " "); got != "waits/count wait/nanoseconds holds/count hold/nanoseconds waiting/count held/count" || p.DefaultSampleType != "hold" {
			t.Errorf("%s, by default %s", got, p.DefaultSampleType)
		}
		if len(p.Sample) != 2 || p.DurationNanos <= 0 {
			t.Fatalf("%d samples; want one of who held and one of who waited, of both clients:\n%s", len(p.Sample), p)
		}
		for _, s := range p.Sample {
			if s.Label["group"][0] != "orders" || s.Label["kind"][0] != "mutex" {
				t.Errorf("labels %v", s.Label)
			}
			kind, times := "hold", "holds"
			if strings.Contains(s.Location[0].Line[0].Function.Name, "contend.func") {
				kind, times = "wait", "waits"
			}
			if n, d := value(t, p, s, times), time.Duration(value(t, p, s, kind)); n != 2 || d < 2*time.Second || d > 2100*time.Millisecond {
				t.Errorf("%d %s, %v of %s; want 2, of a second each", n, times, d, s.Location[0].Line[0].Function.Name)
			}
		}
	})
}

// A delta profile leaves out waits and holds from before, and has the locks that are held now.
func TestDelta(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		m := c.Mutex("orders:1")
		contend(t, m)
		contend(t, m)
		l, err := c.Mutex("other").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { contend(t, m) }) // with a stack of its own
		var b bytes.Buffer
		if err := lockprofile.WriteDelta(t.Context(), &b, 10*time.Second, c); err != nil {
			t.Fatal(err)
		}
		p, err := profile.Parse(&b)
		if err != nil {
			t.Fatal(err)
		}
		var waits, holds, held int64
		for _, s := range p.Sample {
			waits, holds, held = waits+value(t, p, s, "waits"), holds+value(t, p, s, "holds"), held+value(t, p, s, "held")
		}
		if waits != 1 || holds != 1 || held != 1 || p.DurationNanos != 10e9 || len(p.Sample) != 3 {
			t.Errorf("%d waits, %d holds, %d held in\n%s", waits, holds, held, p)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBroken)
		if err := lockprofile.WriteDelta(ctx, &b, time.Hour, c); !errors.Is(err, errBroken) || b.Len() != 0 {
			t.Errorf("%v, %d bytes", err, b.Len())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLabelsThatCanNotBePrinted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		contend(t, c.Mutex("a\nb\u202e", lock.WithGroup("evil\n\x1b[31m\u202e")))
		p := written(t, c)
		for _, s := range p.Sample {
			if got := s.Label["group"][0]; got != `"evil\n\x1b[31m\u202e"` {
				t.Errorf("the group is %s", got)
			}
		}
	})
}

// deep takes a lock with as many stacks as path has values.
func deep(t *testing.T, m *lock.Mutex, path, depth int) {
	switch {
	case depth == 0:
		if _, err := m.TryLock(t.Context()); err != nil { // held until the client closes
			t.Error(err)
		}
	case path&1 == 0:
		deep(t, m, path>>1, depth-1)
	default:
		deep(t, m, path>>1, depth-1)
	}
}

// The stacks for which there was no room are one sample, without labels; nothing gets lost.
func TestStacksBeyondTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const stacks = 2050
		c := newClient(t, lock.WithFixedLease(time.Hour))
		var taken sync.WaitGroup // together they are few calls
		for i := range stacks {
			taken.Go(func() { deep(t, c.Mutex("x"+string(rune(0x4e00+i))), i, 12) })
		}
		taken.Wait()
		p := written(t, c)
		var held, others int64
		for _, s := range p.Sample {
			held += value(t, p, s, "held")
			if s.Location[0].Line[0].Function.Name == "lockdog: other stacks" {
				others = value(t, p, s, "held")
				if len(s.Label) != 0 {
					t.Errorf("labels %v of many", s.Label)
				}
			}
		}
		if held != stacks || others != stacks-2000 || len(p.Sample) != 2001 {
			t.Errorf("%d held, %d of other stacks, %d samples", held, others, len(p.Sample))
		}
	})
}

type broken struct{ io.Writer }

var errBroken = errors.New("broken pipe")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteFails(t *testing.T) {
	t.Parallel()
	if err := lockprofile.Write(broken{}); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if p := written(t); len(p.Sample) != 0 || len(p.SampleType) != 6 {
		t.Errorf("of no clients: %v", p)
	}
}
