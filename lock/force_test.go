package lock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// A forced unlock leaves a span, a record and a count where it was called, and its victim can tell whose it was.
func TestForceUnlockIsAudited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScope(t), redistest.StartFake(t)
		open := func(id string, tap fakeredis.Tap) *lock.Client {
			return openTapped(t, srv, tap, lock.WithClientID(id), lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter), lock.WithLogger(s.log))
		}
		sick := false
		holder := open("holder", fakeredis.Tap{})
		operator := open("operator", fakeredis.Tap{Up: func(cmd redis.Cmder) error {
			if sick && script.Force.IsRunBy(cmd) {
				return context.DeadlineExceeded
			}
			return nil
		}})
		l := try(t, holder.Mutex("job:1"))
		synctest.Wait() // the holder listens
		ctx, caller := s.tracer.Tracer("the program").Start(t.Context(), "request")
		force := func() map[string]string {
			s.spans.Reset()
			_, _ = operator.Mutex("job:1").ForceUnlock(ctx)
			spans := s.spansNamed("force unlock job")
			if len(spans) != 1 || spans[0].Parent.SpanID() != caller.SpanContext().SpanID() || spans[0].SpanKind != trace.SpanKindInternal {
				t.Fatalf("spans %v", spans)
			}
			found := map[string]string{"status": spans[0].Status.Code.String()}
			for k, v := range attrsOf(spans[0]) {
				found[string(k)] = v
			}
			return found
		}
		wants := func(got map[string]string, want map[string]string) {
			t.Helper()
			for k, v := range want {
				if got[k] != v {
					t.Errorf("the span says %s = %q, want %q", k, got[k], v)
				}
			}
		}
		wants(force(), map[string]string{
			"lockdog.name": "job:1", "lockdog.kind": "mutex", "lockdog.group": "job", "lockdog.outcome": "forced",
			"lockdog.owner": l.Owner(), "lockdog.forced_by": "operator", "status": codes.Unset.String(),
		})
		mustBeLost(t, l, lock.CauseForced)
		mustMention(t, l.Err(), "forced", "operator")
		synctest.Wait()
		lost := s.records(t, telemetry.LogLost)
		if len(lost) != 1 || lost[0]["cause"] != "forced" || !strings.Contains(lost[0]["error"].(string), "operator") {
			t.Errorf("the holder's records: %v", lost)
		}
		if recent := holder.Recent(); len(recent) != 1 || recent[0].Why != "forced" {
			t.Errorf("Recent: %+v", recent)
		}

		wants(force(), map[string]string{"lockdog.outcome": "free", "lockdog.owner": "", "status": codes.Unset.String()})
		sick = true
		wants(force(), map[string]string{"lockdog.outcome": "error", "error.type": "timeout", "status": codes.Error.String()})
		if n := s.sum(t, telemetry.MetricForced, "lockdog.group=job"); n != 1 {
			t.Errorf("%v forced unlocks are counted, want 1", n)
		}
		records := s.records(t, telemetry.LogForced)
		if len(records) != 1 {
			t.Fatalf("records %v, want one", records)
		}
		r := records[0]
		if r["name"] != "job:1" || r["owner"] != l.Owner() || r["by"] != "operator" || r["trace_id"] != caller.SpanContext().TraceID().String() ||
			!strings.Contains(r["caller"].(string), "TestForceUnlockIsAudited") || !strings.Contains(r["caller"].(string), "force_test.go:") {
			t.Errorf("record %v", r)
		}
	})
}

// A message on the control channel doesn't end a lease: its holder renews the lease at once, and goes on if the lock is
// still held. The message is only believed about who forced a loss. One that names the owner alone, as operators and
// older clients send it, has the same effect.
func TestControlMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.StartFake(t).Client(t)
		s := newScope(t)
		c, operator := s.open(t, rdb), newScope(t).open(t, rdb, lock.WithClientID("operator"))
		l := try(t, c.Mutex("job"))
		control := "lockdog:control:" + l.Owner()[:strings.LastIndexByte(l.Owner(), '-')]
		eventually(t, patience, func() bool { return rdb.PubSubNumSub(t.Context(), control).Val()[control] == 1 })
		renewed := func(n float64) {
			t.Helper()
			eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") == n })
		}
		say := func(text string) { must(t, "PUBLISH", rdb.Publish(t.Context(), control, text).Err()) }
		say(l.Owner() + " forced by somebody")
		renewed(1)
		say(l.Owner() + " is gone")
		say(l.Owner())
		renewed(2)
		if l.Err() != nil {
			t.Fatalf("the lease ended: %v", l.Err())
		}
		must(t, "DEL", rdb.Del(t.Context(), "job").Err())
		say(l.Owner())
		mustBeLost(t, l, lock.CauseMissing)

		l = try(t, c.Mutex("job"))
		sub := rdb.Subscribe(t.Context(), control)
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(t.Context())
		must(t, "SUBSCRIBE", err)
		if was, err := operator.Mutex("job").ForceUnlock(t.Context()); err != nil || !was {
			t.Fatalf("ForceUnlock: %v, %v", was, err)
		}
		if heard := await(t, "a message", sub.Channel()).Payload; heard != l.Owner()+" forced by operator" {
			t.Errorf("the holder is told %q", heard)
		}
		mustBeLost(t, l, lock.CauseForced)
	})
}
