package lock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lmittmann/tint"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// Whatever others have written into Redis, and whatever a lock or client is called: what is shown of it is text, of bearable
// length, and nothing else.

const (
	longest    = 2048 // of anything that is shown, in bytes: names have up to 1,024
	longestLog = 8192 // of a record
)

// hostile is what somebody else may have chosen.
type hostile struct {
	name, client, group string // by the program, perhaps of what its users said
	owner, count, meta  string // in Redis
	answer              string // an error's
}

var harmless = hostile{"name", "client", "group", "owner", "1", "7", "answer"}

// shown is all that was to be seen.
type shown struct {
	scope    *scope
	tint     bytes.Buffer
	page     [][]byte // JSON
	errors   []error
	refused  bool // the program's own names were
	complete bool // every scene was played
}

// play has somebody else hold the lock, a caller try and wait, then get it, fail to renew it, and lose it.
func (h hostile) play(t *testing.T) (seen *shown) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { seen = h.playInBubble(t) })
	return seen
}

func (h hostile) playInBubble(t *testing.T) (seen *shown) {
	seen = &shown{scope: newScope(t)}
	handlers := slog.NewMultiHandler(slog.NewJSONHandler(seen.scope, nil), tint.NewTextHandler(&seen.tint, &tint.Options{NoColor: true}))
	srv := redistest.StartFake(t)
	admin, rdb := srv.Client(t), srv.Client(t)
	var fails atomic.Bool
	rdb.AddHook(fakeredis.Tap{Up: func(cmd redis.Cmder) error {
		if fails.Load() && script.Renew.IsRunBy(cmd) {
			return errors.New(h.answer)
		}
		return nil
	}})
	c, err := lock.New(rdb, lock.WithRenewalClient(rdb),
		lock.WithClientID(h.client), lock.WithTracerProvider(seen.scope.tracer), lock.WithMeterProvider(seen.scope.meter),
		lock.WithLogger(slog.New(handlers)), lock.WithReentrancy(),
		lock.WithContentionProfile(0)) // what it shows depends on times; lockdebug's own tests give it hostile names
	if err != nil {
		seen.errors, seen.refused = append(seen.errors, err), true
		return seen
	}
	defer closeSoon(c)
	note := func(err error) error {
		if err != nil {
			seen.errors = append(seen.errors, err)
		}
		return err
	}
	page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{c}, TraceURL: "http://localhost/{trace_id}"})
	ask := func() []byte {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Body.Bytes()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m := c.Mutex(h.name, lock.WithGroup(h.group), lock.WithHoldWarning(time.Hour))

	must(t, "HSET", admin.HSet(ctx, h.name, h.owner, h.count, "@lockdog", h.meta).Err())
	must(t, "EXPIRE", admin.Expire(ctx, h.name, time.Hour).Err())
	if err := note(second(m.TryLock(ctx))); errors.Is(err, lock.ErrInvalid) {
		seen.refused = true
		return seen
	}
	if _, err := m.Inspect(ctx); err != nil {
		_ = note(err)
	}
	wctx, leave := context.WithCancel(ctx)
	waiter := begin(wctx, m)
	synctest.Wait()
	seen.page = append(seen.page, ask())
	leave()
	w := <-waiter
	if note(w.err) == nil { // nobody could be told from that hash to hold it
		_ = w.Release(ctx)
		return seen
	}

	must(t, "FLUSHALL", admin.FlushAll(ctx).Err())
	l, err := m.TryLock(ctx)
	if note(err) != nil {
		return seen
	}
	fails.Store(true)
	time.Sleep(lock.DefaultLease / 3)
	synctest.Wait()
	if leases := c.Leases(); len(leases) != 1 || leases[0].LastError == nil {
		t.Fatalf("%q: no renewal failed: %+v", h, leases)
	}
	seen.page = append(seen.page, ask())
	fails.Store(false)
	must(t, "HSET", admin.HSet(ctx, h.name, h.owner, 1, "@lockdog", "").Err())
	must(t, "HDEL", admin.HDel(ctx, h.name, l.Owner()).Err())
	_ = note(l.Release(ctx))
	seen.page = append(seen.page, ask())
	seen.complete = true
	return seen
}

// FuzzHostile plays it with anything.
func FuzzHostile(f *testing.F) {
	long := strings.Repeat("<\xff", 5000)
	f.Add("orders:42", "worker", "orders", "java:1", "1", "7 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "ERR")
	f.Add("a\nlevel=ERROR msg=forged", "\x1b[31mred", "g\r\n", "o\x00wner\u202e", "1e9", "x\ny", "NOSCRIPT\nforged")
	f.Add(`"><script>alert(1)</script>`, "'--", "</style><b>", `" onmouseover="x`, "-1", "javascript:alert(1)", "<img src=x>")
	f.Add("{{.}}", "%s%n", "javascript:x", long, long, long, long)
	f.Add("a", "b", "c", "\xff\xfe", "\xff", "\xff", "WRONGTYPE \xff")
	want := new(shown)
	f.Fuzz(func(t *testing.T, name, client, group, owner, count, meta, answer string) {
		if !want.complete {
			if want = harmless.play(t); !want.complete {
				t.Fatal("the harmless play stops early")
			}
		}
		seen := hostile{name, client, group, owner, count, meta, answer}.play(t)
		seen.judge(t)
	})
}

// judge looks at all that is shown.
func (s *shown) judge(t *testing.T) {
	t.Helper()
	text := func(what, got string) {
		t.Helper()
		if !utf8.ValidString(got) || len(got) > longest {
			t.Errorf("%s: %d bytes, valid %v: %.100q", what, len(got), utf8.ValidString(got), got)
		}
	}
	attrs := func(what string, all []attribute.KeyValue) {
		t.Helper()
		for _, kv := range all {
			text(what+" "+string(kv.Key), kv.Value.String())
		}
	}
	for _, span := range s.scope.spans.GetSpans() {
		text("span", span.Name)
		text("status of "+span.Name, span.Status.Description)
		attrs(span.Name, span.Attributes)
		for _, l := range span.Links {
			attrs("link of "+span.Name, l.Attributes)
		}
		for _, e := range span.Events {
			attrs("event of "+span.Name, e.Attributes)
		}
	}
	records := 0
	for line := range bytes.Lines(s.scope.text.Bytes()) {
		records++
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil || len(line) > longestLog {
			t.Errorf("JSON log: %v, %d bytes: %.100q", err, len(line), line)
		}
	}
	if got := bytes.Count(s.tint.Bytes(), []byte("\n")); got != records {
		t.Errorf("%d lines for %d records:\n%s", got, records, &s.tint)
	}
	log := s.tint.String()
	if bad := strings.IndexFunc(log, func(r rune) bool { return r != '\n' && r != '\t' && (unicode.IsControl(r) || r == '\u202e') }); bad >= 0 || !utf8.ValidString(log) {
		t.Errorf("log: valid %v, %q", utf8.ValidString(log), log[max(bad-40, 0):min(bad+40, len(log))])
	}
	for _, page := range s.page { // which a browser makes text of
		if len(page) > 20_000+20*longestLog || !json.Valid(page) || !utf8.Valid(page) || bytes.ContainsAny(page, "<>&") {
			t.Errorf("a page of %d bytes: %.200q", len(page), page)
		}
	}
	for _, err := range s.errors {
		if len(err.Error()) > longestLog {
			t.Errorf("an error of %d bytes: %.100q", len(err.Error()), err)
		}
	}
}
