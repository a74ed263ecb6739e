package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What telemetry says of a lock that has members: a Multi's names, or a Quorum's nodes.

const wholeLease = 9 * time.Second

func (s *scope) options() []lock.Option {
	return []lock.Option{
		lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter), lock.WithLogger(s.log), lock.WithLease(wholeLease),
	}
}

// counted checks what sums of a metric are.
func (s *scope) counted(t *testing.T, when string, want map[string]float64) {
	t.Helper()
	for _, m := range telemetry.Metrics {
		if n, ok := want[m.Name]; ok && s.sum(t, m) != n {
			t.Errorf("%s: %s is %v, want %v: %v", when, m.Name, s.sum(t, m), n, s.series(t, m))
		}
		delete(want, m.Name)
	}
	for name := range want {
		t.Errorf("there is no %s", name)
	}
}

// A lock of a Quorum, and one of several names, is one lock to whoever counts: it is waited for, had, held and given back once.
func TestWholeIsCountedOnce(t *testing.T) {
	t.Parallel()
	for kind, make := range map[string]func(t *testing.T, s *scope) lock.Locker{
		"quorum": func(t *testing.T, s *scope) lock.Locker { return newTriple(t, s.options()...).Mutex("job:1") },
		"multi": func(t *testing.T, s *scope) lock.Locker {
			return open(t, redistest.StartFake(t).Client(t), s.options()...).Multi([]string{"job:1", "kiosk:1", "zoo:1"})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScope(t)
			m := make(t, s)
			l := try(t, m)
			mustMatch(t, second(m.TryLock(context.Background())), lock.ErrHeld)
			next := begin(context.Background(), m)
			time.Sleep(2 * wholeLease)
			s.counted(t, kind+", held and waited for", map[string]float64{
				"lockdog.held": 1, "lockdog.acquire.waiting": 1, "lockdog.acquisitions": 2, "lockdog.acquire.duration": 2, "lockdog.releases": 0,
				"lockdog.hold.oldest.age": (2 * wholeLease).Seconds(),
			})
			free(t, l)
			free(t, granted(t, next))
			synctest.Wait()
			s.counted(t, kind+", released", map[string]float64{
				"lockdog.held": 0, "lockdog.acquire.waiting": 0, "lockdog.acquisitions": 3, "lockdog.acquire.duration": 3, "lockdog.releases": 2,
				"lockdog.release.duration": 2, "lockdog.hold.duration": 2, "lockdog.losses": 0, "lockdog.cancellations": 0, "lockdog.members.lost": 0,
			})
			for _, metric := range []telemetry.Metric{telemetry.MetricAcquisitions, telemetry.MetricHoldDuration, telemetry.MetricReleases} {
				mustBe(t, metric.Name, s.sum(t, metric, "lockdog.group=job"), s.sum(t, metric))
			}
			if n := s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed"); n < 2*5 { // of a majority, in six intervals
				t.Errorf("%s: %v renewals, want those of all members", kind, n)
			}
		})
	}
}

// A Quorum that loses one node has not lost the lock, and its lease isn't near its end. The node counts in
// lockdog.members.lost, and a log record names it. The loss of a majority counts as one loss.
func TestQuorumGoesOnWithoutANode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		r := newTriple(t, s.options()...)
		l := try(t, r.Mutex("job:1"))
		synctest.Wait()
		most := func(period time.Duration) (most float64) {
			for range period / (100 * time.Millisecond) {
				time.Sleep(100 * time.Millisecond)
				most = max(most, s.sum(t, telemetry.MetricWorstUtilization))
			}
			return most
		}
		r.down[2].Store(true)
		if worst := most(3 * wholeLease); worst > 0.36 || worst < 0.3 || l.Err() != nil {
			t.Errorf("without a node: %.2f of the lease is used up; it ended: %v", worst, l.Err())
		}
		s.counted(t, "without a node", map[string]float64{
			"lockdog.losses": 0, "lockdog.members.lost": 1, "lockdog.held": 1, "lockdog.cancellations": 0, "lockdog.hold.duration": 0,
		})
		mustBe(t, "members lost", s.sum(t, telemetry.MetricMembersLost, "lockdog.cause=unreachable", "lockdog.group=job"), 1.0)
		told := s.records(t, telemetry.LogMember)
		if len(told) != 1 || told[0]["node"] != r.servers[2].Addr() || told[0]["level"] != "WARN" || len(s.records(t, telemetry.LogLost)) != 0 {
			t.Errorf("the log says %v, %v", told, s.records(t, telemetry.LogLost))
		}
		for _, span := range s.spansNamed("lost member job") {
			if attrsOf(span)["lockdog.node"] != r.servers[2].Addr() || span.Status.Code == codes.Error {
				t.Errorf("%v, %v", span.Attributes, span.Status)
			}
		}

		r.down[1].Store(true)
		if worst := most(wholeLease * 9 / 10); worst < 0.7 {
			t.Errorf("before the loss of the majority %.2f of the lease is used up", worst)
		}
		<-l.Ended()
		synctest.Wait()
		s.counted(t, "without a majority", map[string]float64{
			"lockdog.losses": 1, "lockdog.members.lost": 2, "lockdog.held": 0, "lockdog.cancellations": 0, "lockdog.hold.duration": 1,
			"lockdog.lease.utilization.worst": 0, "lockdog.hold.oldest.age": 0,
		})
		mustBe(t, "records of the loss", len(s.records(t, telemetry.LogLost)), 1)
		lost := s.spansNamed("lost job")
		if len(lost) != 1 || lost[0].Status.Code != codes.Error || attrsOf(lost[0])["error.type"] != "unreachable" {
			t.Errorf("lost: %v", lost)
		}
		mustMatch(t, l.Release(context.Background()), lock.ErrLost)
		s.counted(t, "released", map[string]float64{"lockdog.releases": 0, "lockdog.losses": 1, "lockdog.hold.duration": 1})
	})
}

// If a Quorum got the lock without one of its nodes, the span of that node has the error's type, but not the status
// error.
func TestQuorumMemberThatFailedIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		r := newTriple(t, s.options()...)
		r.down[2].Store(true)
		l := try(t, r.Mutex("job:1"))
		time.Sleep(2 * time.Second) // the third isn't waited for
		free(t, l)
		seen := map[string]int{}
		for _, span := range s.spansNamed("acquire member job") {
			got := attrsOf(span)
			seen[got["lockdog.outcome"]+" "+got["error.type"]]++
			if span.Status.Code == codes.Error {
				t.Errorf("%v has the status %v", got, span.Status)
			}
		}
		if seen["acquired "] != 2 || seen["error network"] != 1 {
			t.Errorf("acquires %v", seen)
		}
	})
}

// The spans of a whole and of its members are one tree, in which each member says where it is.
func TestSpansOfMembersAreChildren(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		ctx, request := s.tracer.Tracer("the program").Start(context.Background(), "request")
		r := newTriple(t, s.options()...)
		l := enter(t, ctx, r.Mutex("job:1"))
		time.Sleep(wholeLease / 2)
		must(t, "Release", l.Release(ctx))
		request.End()
		synctest.Wait()

		byID := make(map[any]tracetest.SpanStub)
		for _, span := range s.spans.GetSpans() {
			byID[span.SpanContext.SpanID()] = span
		}
		seen := make(map[string]int) // of each name how many, and the nodes
		for _, span := range byID {
			parent := byID[span.Parent.SpanID()]
			node := attrsOf(span)["lockdog.node"]
			seen[fmt.Sprintf("%s < %s", span.Name, parent.Name)]++
			if node != "" && span.Name != "renew batch" {
				seen[fmt.Sprintf("%s at %s", span.Name, node)]++
			}
			if above := attrsOf(parent)["lockdog.node"]; above != "" && above != node {
				t.Errorf("%s at %s is a child of %s at %s", span.Name, node, parent.Name, above)
			}
		}
		want := map[string]int{
			"request < ": 1, "acquire job < request": 1, "held job < acquire job": 1, "hold job < held job": 1, "release job < request": 1,
			"acquire member job < acquire job": 3, "held member job < acquire member job": 3, "renew job < held member job": 3,
			"hold member job < held member job": 3, "release member job < release job": 3, "renew batch < ": 3,
		}
		for _, name := range []string{"acquire member", "held member", "renew", "hold member", "release member"} {
			for _, srv := range r.servers {
				want[fmt.Sprintf("%s job at %s", name, srv.Addr())] = 1
			}
		}
		if !maps.Equal(seen, want) {
			t.Errorf("the spans are %v, want %v", seen, want)
		}
	})
}

// Who joins a Multi within its Context has the same lock: it is one until the last has released it, or it is lost.
func TestWholeIsJoined(t *testing.T) {
	t.Parallel()
	for _, lose := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, srv := newScope(t), redistest.StartFake(t)
			m := open(t, srv.Client(t), s.options()...).Multi([]string{"job:1", "job:2"},
				lock.WithReentrancy(), lock.WithLifetime(context.Background()))
			outer := try(t, m)
			inner := enter(t, outer.Context(), m)
			free(t, outer)
			s.counted(t, "held by who joined", map[string]float64{"lockdog.held": 1, "lockdog.acquisitions": 2, "lockdog.releases": 0})
			for _, outcome := range []string{"acquired", "reentered"} {
				mustBe(t, outcome, s.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome="+outcome), 1.0)
			}
			if lose {
				del(t, srv, "job:1")
				<-inner.Ended()
				synctest.Wait()
				s.counted(t, "lost", map[string]float64{"lockdog.losses": 1, "lockdog.members.lost": 1, "lockdog.held": 0, "lockdog.hold.duration": 1})
				return
			}
			free(t, inner)
			s.counted(t, "released", map[string]float64{"lockdog.releases": 1, "lockdog.held": 0, "lockdog.hold.duration": 1, "lockdog.losses": 0})
		})
	}
}

// A lease that joined a Quorum's lease before the third node was part of it has fewer members, so it may be lost first.
// The outer lease then goes on, and its release counts.
func TestWholeOutlivesWhatJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		p := ns.quorum(lock.WithLease(wholeLease), lock.WithReentrancy())
		free(t, p.everywhere(t, p.Mutex("before"))) // the servers know the scripts
		ns.wires[2].set(redistest.When(redistest.Down, redistest.Delay(100*time.Millisecond)))
		outer := try(t, p.Mutex("job"))
		inner, err := p.Mutex("job").TryLock(outer.Context())
		must(t, "TryLock", err)
		time.Sleep(time.Second) // until the third node is part of the outer one
		ns.wires[2].set(nil)
		ns.raw[0].Del(t.Context(), "job")
		<-inner.Ended()
		synctest.Wait()
		if outer.Err() != nil {
			t.Fatalf("the outer lease ended: %v", outer.Err())
		}
		p.counted(t, "the inner one is lost", map[string]float64{"lockdog.held": 1, "lockdog.losses": 0})
		if err := inner.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		free(t, outer)
		p.counted(t, "the outer one is released", map[string]float64{"lockdog.held": 0, "lockdog.releases": 2, "lockdog.losses": 0})
	})
}

// The end of a ctx, or of a limit, is one cancellation, and one record of it; so is a warning.
func TestWholeIsCanceledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		c := open(t, redistest.StartFake(t).Client(t), s.options()...)
		names := []string{"job:1", "job:2", "job:3"}
		l := try(t, c.Multi(names, lock.WithMaxHold(2*wholeLease), lock.WithHoldWarning(wholeLease)))
		<-l.Context().Done()
		synctest.Wait()
		s.counted(t, "cut off", map[string]float64{"lockdog.cancellations": 1, "lockdog.held": 1, "lockdog.losses": 0})
		if cut, long := len(s.records(t, telemetry.LogCut)), len(s.records(t, telemetry.LogHeld)); cut != 1 || long != 1 {
			t.Errorf("%d records of the end, %d of a long hold", cut, long)
		}
		<-l.Ended() // never released
		synctest.Wait()
		s.counted(t, "run out", map[string]float64{"lockdog.held": 0, "lockdog.losses": 0, "lockdog.members.lost": 0, "lockdog.hold.duration": 1})
		if attrs := attrsOf(s.spansNamed("hold job")[0]); attrs["lockdog.end"] != "canceled" || attrs["lockdog.name"] != "job:1,job:2,job:3" {
			t.Errorf("%v", attrs)
		}

		ctx, cancel := context.WithCancel(context.Background())
		l, err := c.Multi(names).Lock(ctx)
		must(t, "Lock", err)
		cancel()
		<-l.Context().Done()
		synctest.Wait()
		free(t, l)
		s.counted(t, "released after its ctx", map[string]float64{"lockdog.cancellations": 2, "lockdog.releases": 1, "lockdog.held": 0})
	})
}
