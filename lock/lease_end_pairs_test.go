package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// A lease ends once, whatever meets: all channels tell of the same end.

const (
	endsLease = 30 * time.Second
	endsKey   = "job:1"
)

// way is one in which a lease ends, or loses its permission to work.
type way struct {
	name  string
	opts  func(first bool) []lock.LockOption // nil: none
	take  func(r *endsRig)
	end   string // what Recent says of it when it came first
	why   string
	fixed bool // the lease isn't renewed, so that nobody learns what became of it in Redis
	asks  bool // it needs a lease that is renewed
	like  bool // it comes about as another does: not for all subjects
}

// with reports whether a lease can have both ends.
func (w way) with(other way) bool {
	return w.name != other.name && (!w.fixed || !other.asks) && (!w.asks || !other.fixed)
}

// limit is when a limit on a lease is due: before the lease could run out when it is to come first, else after that.
func limit(first bool) time.Duration {
	if first {
		return endsLease / 2
	}
	return 3 * endsLease
}

var ways = []way{
	{name: "missing", end: "lost", why: "missing", asks: true, take: func(r *endsRig) {
		r.lose(func(rdb *redis.Client) { rdb.Del(context.Background(), endsKey) })
	}},
	{name: "taken", end: "lost", why: "taken", asks: true, like: true, take: func(r *endsRig) {
		r.lose(func(rdb *redis.Client) {
			rdb.Del(context.Background(), endsKey)
			rdb.HSet(context.Background(), endsKey, "thief:1", 1)
			rdb.PExpire(context.Background(), endsKey, endsLease)
		})
	}},
	{name: "unreachable", end: "lost", why: "unreachable", asks: true, take: func(r *endsRig) {
		for _, srv := range r.servers {
			srv.SetRefusal(func(cmd string, args ...string) string {
				if cmd == "PEXPIREAT" && args[0] == endsKey {
					return "ERR no renewal" // of this lock, of several
				}
				return ""
			})
		}
		r.lose(func(*redis.Client) {})
		time.Sleep(endsLease)
	}},
	{name: "forced", end: "lost", why: "forced", asks: true, like: true, take: func(r *endsRig) {
		for _, srv := range r.servers { // through a client of another process
			_, _ = open(r.t, srv.Client(r.t)).Mutex(endsKey).ForceUnlock(context.Background())
		}
	}},
	{
		name: "expired", end: "lost", why: "expired", fixed: true, take: func(*endsRig) { time.Sleep(endsLease) },
		opts: func(bool) []lock.LockOption { return []lock.LockOption{lock.WithFixedLease(endsLease)} },
	},
	{name: "ctx", end: "canceled", why: "context", take: func(r *endsRig) { r.cancel() }},
	{
		name: "max hold", end: "canceled", why: "max_hold", asks: true, like: true, take: func(r *endsRig) { sleepUntil(r.since.Add(limit(r.first == "max hold"))) },
		opts: func(first bool) []lock.LockOption { return []lock.LockOption{lock.WithMaxHold(limit(first))} },
	},
	{
		name: "heartbeat", end: "canceled", why: "heartbeat", asks: true, take: func(r *endsRig) { sleepUntil(r.since.Add(limit(r.first == "heartbeat"))) },
		opts: func(first bool) []lock.LockOption { return []lock.LockOption{lock.WithHeartbeat(limit(first))} },
	},
	{name: "close", end: "closed", why: "closed", take: func(r *endsRig) { r.close(r.closing) }},
	{name: "abandon", end: "closed", why: "closed", take: func(r *endsRig) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		r.stop() // a Close that was first goes on until then
		r.close(ended)
	}},
	{name: "release", end: "released", take: func(r *endsRig) {
		r.all.Go(func() { r.released <- r.l.Release(context.Background()) })
	}},
}

// endsRig is one lease, with everything that tells of its end.
type endsRig struct {
	*scope
	t        *testing.T
	of       string // "" of the lease itself, " member" of those that it is made of
	first    string // the name of the way that is to come first
	servers  []*redistest.Fake
	clients  []*lock.Client
	l        *lock.Lease
	since    time.Time
	cancel   context.CancelFunc
	closing  context.Context // of a Close that waits
	stop     context.CancelFunc
	released chan error
	all      sync.WaitGroup
	gate     *gate // at which the first end is held up as soon as it has begun to tell
}

// heldUp is a logger that waits at the gate when it is told of an end.
type heldUp struct {
	slog.Handler
	gate *gate
}

func (s heldUp) Handle(ctx context.Context, r slog.Record) error {
	err := s.Handler.Handle(ctx, r)
	if slices.Contains([]string{telemetry.LogLost.Message, telemetry.LogMember.Message, telemetry.LogCut.Message, telemetry.LogEnd.Message}, r.Message) {
		s.gate.pass()
	}
	return err
}

// subjects are what has a lease.
var subjects = map[string]func(r *endsRig, opts []lock.LockOption) lock.Locker{
	"mutex": func(r *endsRig, opts []lock.LockOption) lock.Locker {
		return r.clients[0].Mutex(endsKey, opts...)
	},
	"multi": func(r *endsRig, opts []lock.LockOption) lock.Locker {
		return r.clients[0].Multi([]string{endsKey, "job:2"}, opts...)
	},
	"quorum": func(r *endsRig, opts []lock.LockOption) lock.Locker {
		q, err := lock.NewQuorum(r.clients...)
		must(r.t, "NewQuorum", err)
		return q.Mutex(endsKey, opts...)
	},
}

func newEndsRig(t *testing.T, subject string, first way, opts []lock.LockOption, held bool) *endsRig {
	r := &endsRig{scope: newScope(t), t: t, first: first.name, gate: newGate(), released: make(chan error, 1)}
	r.closing, r.stop = context.WithCancel(context.Background())
	if !held {
		close(r.gate.opened)
	}
	if subject != "mutex" {
		r.of = " member"
	}
	nodes := 1
	if subject == "quorum" {
		nodes = 3
	}
	tap := fakeredis.Tap{Down: func(cmd redis.Cmder) error {
		if first.name == "release" && cmd.Err() == nil && (script.Release.IsRunBy(cmd) || script.MultiRelease.IsRunBy(cmd)) {
			r.gate.pass()
		}
		return nil
	}}
	for range nodes {
		srv := redistest.StartFake(t)
		r.servers = append(r.servers, srv)
		r.clients = append(r.clients, openTapped(t, srv, tap, lock.WithTracerProvider(r.tracer), lock.WithMeterProvider(r.meter),
			lock.WithLogger(slog.New(heldUp{slog.NewJSONHandler(r, nil), r.gate})), lock.WithLease(endsLease)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	l, err := subjects[subject](r, opts).TryLock(ctx)
	must(t, "TryLock", err)
	synctest.Wait()
	r.l, r.since = l, time.Now()
	return r
}

// lose does something to the lock at every server, and has the holder look.
func (r *endsRig) lose(how func(*redis.Client)) {
	for _, srv := range r.servers {
		lose(r.t, srv, endsKey, how)
	}
}

// close closes the clients.
func (r *endsRig) close(ctx context.Context) {
	for _, c := range r.clients {
		r.all.Go(func() { _ = c.Close(ctx) }) // says what it left
	}
}

// over waits until everything has been told.
func (r *endsRig) over() {
	if !r.gate.isOpen() {
		close(r.gate.opened)
	}
	synctest.Wait()
	r.stop()
	r.close(r.closing)
	r.all.Wait()
	synctest.Wait()
}

// agree fails the test unless logs, spans, metrics and Recent report the same one end of the lease. If the lease has
// members, it checks that for each of them, and for the whole. It returns what Recent says, by owner.
func (r *endsRig) agree(what string) map[string]lock.EndedLease {
	t := r.t
	t.Helper()
	ended := make(map[string]lock.EndedLease)
	for _, c := range r.clients {
		for _, e := range c.Recent() {
			if other, ok := ended[e.Owner]; ok {
				t.Errorf("%s: Recent has two ends of %s: %+v and %+v", what, e.Owner, other, e)
			}
			ended[e.Owner] = e
		}
		for _, l := range c.Leases() {
			t.Errorf("%s: Leases has %+v yet", what, l)
		}
	}
	told := func(owner string, logs ...telemetry.Log) (n int) {
		for _, log := range logs {
			for _, record := range r.records(t, log) {
				if record["owner"] == owner {
					n++
				}
			}
		}
		return n
	}
	marks := func(name, owner string) (n int) {
		for _, span := range r.spansNamed(name + r.of + " job") {
			if attrsOf(span)[telemetry.KeyOwner] == owner {
				n++
			}
		}
		return n
	}
	losses, cancellations, lossLog := telemetry.MetricLosses, []telemetry.Log{telemetry.LogEnd, telemetry.LogCut}, telemetry.LogLost
	if r.of != "" {
		losses, cancellations, lossLog = telemetry.MetricMembersLost, nil, telemetry.LogMember
	}
	ends := make(map[string]float64) // so many of each, by metric and label
	for owner, e := range ended {
		lost, canceled := 0, 0
		switch e.End {
		case "lost":
			lost = 1
			ends["loss "+e.Why]++
			if !errors.Is(e.Err, lock.ErrLost) {
				t.Errorf("%s: Recent: lost, with the error %v", what, e.Err)
			}
		case "canceled", "closed":
			canceled = 1
			ends["cancellation "+e.Why]++
		default:
			if !errors.Is(e.Err, lock.ErrReleased) {
				t.Errorf("%s: Recent: %s, with the error %v", what, e.End, e.Err)
			}
		}
		for channel, n := range map[string][2]int{
			"records of a loss":         {told(owner, lossLog), lost},
			"records of a cancellation": {told(owner, cancellations...), canceled * min(len(cancellations), 1)},
			"spans of a loss":           {marks("lost", owner), lost},
			"spans of a cancellation":   {marks("cancel", owner), canceled},
			"spans of the hold":         {marks("hold", owner), 1},
		} {
			if n[0] != n[1] {
				t.Errorf("%s: %d %s of %s, want %d; Recent says %s %s", what, n[0], channel, owner, n[1], e.End, e.Why)
			}
		}
		for _, span := range r.spansNamed("hold" + r.of + " job") {
			if attrs := attrsOf(span); attrs[telemetry.KeyOwner] == owner && attrs[telemetry.KeyEnd] != e.End {
				t.Errorf("%s: the span of the hold of %s ends with %q, Recent says %s", what, owner, attrs[telemetry.KeyEnd], e.End)
			}
		}
	}
	for _, m := range []struct {
		metric telemetry.Metric
		name   string
		label  string
		values []string
	}{
		{losses, "loss", "lockdog.cause", []string{"missing", "taken", "expired", "unreachable", "stalled", "forced"}},
		{telemetry.MetricCancellations, "cancellation", "lockdog.reason", []string{"context", "max_hold", "heartbeat", "closed"}},
	} {
		if r.of != "" && m.name == "cancellation" {
			continue // see agreeWhole
		}
		for _, value := range m.values {
			if got, want := r.sum(t, m.metric, m.label+"="+value), ends[m.name+" "+value]; got != want {
				t.Errorf("%s: %s has %v of %s, Recent %v", what, m.metric.Name, got, value, want)
			}
		}
	}
	if n := r.sum(t, telemetry.MetricHoldDuration); r.of == "" && n != float64(len(ended)) {
		t.Errorf("%s: %s has %v ends, Recent %d", what, telemetry.MetricHoldDuration.Name, n, len(ended))
	}
	if r.of != "" {
		r.agreeWhole(what)
	}
	if n := r.sum(t, telemetry.MetricHeld); n != 0 {
		t.Errorf("%s: %v are held yet", what, n)
	}
	r.agreeLease(what, ended)
	return ended
}

// agreeWhole checks that one end is reported of a lease with members as a whole, and that it is the one that the lease
// itself has.
func (r *endsRig) agreeWhole(what string) {
	t := r.t
	t.Helper()
	var lost *lock.LostError
	var canceled *lock.CanceledError
	end, losses, cancellations := []string{"released"}, 0, 0
	switch cause := context.Cause(r.l.Context()); {
	case errors.As(cause, &canceled):
		end, cancellations = []string{"canceled", "closed"}, 1
		if n := r.sum(t, telemetry.MetricCancellations, "lockdog.reason="+string(canceled.Reason)); n != 1 {
			t.Errorf("%s: %v cancellations are counted, want one: %v", what, r.series(t, telemetry.MetricCancellations), cause)
		}
	case errors.As(r.l.Err(), &lost):
		end, losses = []string{"lost"}, 1
		if n := r.sum(t, telemetry.MetricLosses, "lockdog.cause="+string(lost.Cause)); n != 1 {
			t.Errorf("%s: %v losses are counted, want one: %v", what, r.series(t, telemetry.MetricLosses), lost)
		}
	}
	for channel, n := range map[string][2]int{
		"losses":                    {int(r.sum(t, telemetry.MetricLosses)), losses},
		"records of a loss":         {len(r.records(t, telemetry.LogLost)), losses},
		"spans of a loss":           {len(r.spansNamed("lost job")), losses},
		"cancellations":             {int(r.sum(t, telemetry.MetricCancellations)), cancellations},
		"records of a cancellation": {len(r.records(t, telemetry.LogEnd)) + len(r.records(t, telemetry.LogCut)), cancellations},
		"spans of a cancellation":   {len(r.spansNamed("cancel job")), cancellations},
		"ends":                      {int(r.sum(t, telemetry.MetricHoldDuration)), 1},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d %s of the whole, want %d", what, n[0], channel, n[1])
		}
	}
	if holds := r.spansNamed("hold job"); len(holds) != 1 || !slices.Contains(end, attrsOf(holds[0])[telemetry.KeyEnd]) {
		t.Errorf("%s: the whole was held as %v, want one that was %v", what, holds, end)
	}
}

// agreeLease checks what the lease itself says.
func (r *endsRig) agreeLease(what string, ended map[string]lock.EndedLease) {
	t := r.t
	t.Helper()
	err, cause := r.l.Err(), context.Cause(r.l.Context())
	has := func(end, why string) bool {
		for _, e := range ended {
			if e.End == end && (why == "" || e.Why == why) {
				return true
			}
		}
		return false
	}
	var lost *lock.LostError
	var canceled *lock.CanceledError
	ok := false
	switch {
	case errors.As(cause, &canceled):
		ok = has("canceled", string(canceled.Reason)) || has("closed", string(canceled.Reason))
	case errors.As(cause, &lost):
		ok = has("lost", string(lost.Cause)) && errors.Is(err, lock.ErrLost)
	case errors.Is(cause, lock.ErrReleased):
		// Of several locks each ends by itself: the client may close after the release has begun, and before it has come to all.
		ok = (has("released", "") || len(ended) > 1) && errors.Is(err, lock.ErrReleased) || has("lost", "") && errors.Is(err, lock.ErrLost)
	}
	if !ok {
		t.Errorf("%s: the Context ended with %v, Err is %v, Recent has %+v", what, cause, err, ended)
	}
	if e, single := ended[r.l.Owner()]; single && len(ended) == 1 && !errors.Is(err, e.Err) {
		t.Errorf("%s: Err is %v, Recent has %v", what, err, e.Err)
	}
	select {
	case first := <-r.released: // without an answer of Redis the lease is released, too, which is not confirmed
		if errors.Is(first, lock.ErrLost) != errors.Is(err, lock.ErrLost) || first == nil && !errors.Is(err, lock.ErrReleased) {
			t.Errorf("%s: Release returned %v, Err is %v", what, first, err)
		}
	default:
		if again := r.l.Release(context.Background()); !errors.Is(again, err) {
			t.Errorf("%s: Err is %v, Release after it returns %v", what, err, again)
		}
	}
	if now := r.l.Err(); !errors.Is(now, err) {
		t.Errorf("%s: Err was %v, and is %v", what, err, now)
	}
}

// TestOneEnd plays every pair of ends: one after the other, the second while the first is being told, and both at once.
// In the short form, pairs of a Multi or a Quorum, whose members end as a Mutex does, and pairs with an end that comes
// about like another one (way.like) are played in one of these orders only.
func TestOneEnd(t *testing.T) {
	t.Parallel()
	for subject := range subjects {
		for i, first := range ways {
			for j, second := range ways {
				if !first.with(second) || subject != "mutex" && (first.like || second.like) {
					continue
				}
				orders := []string{"then", "during", "and"}
				if !lock.Full && (subject != "mutex" || first.like || second.like) {
					orders = orders[(i+j)%3:][:1]
				}
				for _, order := range orders {
					what := fmt.Sprintf("%s: %s %s %s", subject, first.name, order, second.name)
					t.Run(what, func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { playEnds(t, subject, first, second, order) })
					})
				}
			}
		}
	}
}

func playEnds(t *testing.T, subject string, first, second way, order string) {
	var opts []lock.LockOption
	if first.opts != nil {
		opts = append(opts, first.opts(true)...)
	}
	if second.opts != nil {
		opts = append(opts, second.opts(order == "and")...)
	}
	r := newEndsRig(t, subject, first, opts, order == "during")
	switch order {
	case "then":
		first.take(r)
		synctest.Wait()
		second.take(r)
	case "during":
		r.all.Go(func() { first.take(r) })
		<-r.gate.reached
		second.take(r)
	case "and":
		r.all.Go(func() { first.take(r) })
		second.take(r)
	}
	synctest.Wait()
	r.over()
	ended := r.agree(order)
	if order == "and" || order == "during" && subject != "mutex" || subject == "quorum" || t.Failed() {
		return // which of several locks has begun to end isn't known
	}
	if e := ended[r.l.Owner()]; e.End != first.end || e.Why != first.why { // the first name's, which is what is lost
		t.Errorf("it ended as %s %s, want %s %s", e.End, e.Why, first.end, first.why)
	}
}
