package lockdebug_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/lock/locktest"
)

var errSick = errors.New("dial tcp 10.0.0.7:6379: connect: connection refused")

// troubled is a rig in a bubble, with one lock in each kind of trouble, after about a minute:
//
//	held      steady, and with two waiters: busy
//	failing   short (a lease of 6 s) and long (60 s)
//	expiring  fixed, the last of a fixed lease
//	canceled  overheld, since two seconds, for WithMaxHold
//	lost      stolen, 30 s ago; deleted, 20 s ago
func troubled(t *testing.T, opts ...lock.Option) *rig {
	t.Helper()
	r := newRig(t, opts...)
	r.hold([]string{"steady"}, lock.WithFixedLease(time.Hour))
	time.Sleep(time.Second)
	r.hold([]string{"busy:1"}, lock.WithFixedLease(time.Hour))
	time.Sleep(time.Second)
	r.hold([]string{"stolen", "deleted", "freed"})
	time.Sleep(20 * time.Second)
	r.srv.Lose("stolen", lock.CauseTaken)
	<-r.held["stolen"].Ended()
	time.Sleep(10 * time.Second)
	r.srv.Lose("deleted", lock.CauseMissing)
	<-r.held["deleted"].Ended()
	if err := r.held["freed"].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.hold([]string{"fixed"}, lock.WithFixedLease(21*time.Second))
	r.wait("busy:1")
	r.wait("busy:1")
	time.Sleep(13 * time.Second)
	r.hold([]string{"overheld"}, lock.WithLease(9*time.Second), lock.WithMaxHold(3*time.Second))
	r.hold([]string{"long"}, lock.WithLease(60*time.Second))
	r.hold([]string{"short"}, lock.WithLease(6*time.Second))
	r.srv.FailRenewals(errSick)
	time.Sleep(5 * time.Second)
	// Only leases as short as this one were due meanwhile. It fails; those behind it would, if they were asked.
	synctest.Wait()
	return r
}

func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := troubled(t)
		d := r.json("")
		if got, want := d.Held.names(), "short fixed overheld steady busy:1 long"; got != want {
			t.Errorf("held, in the order of trouble: %s; want %s", got, want)
		}
		s := d.Summary
		if s.Held != 6 || s.Waiting != 2 || s.Failing != 1 || s.Canceled != 1 || s.LostLastHour != 2 || s.CanceledLastHour != 0 || s.OldestHoldName != "steady" || s.OldestHold != 50 {
			t.Errorf("summary: %+v", s)
		}
		short, fixed, overheld, busy, long := d.Held.Items[0], d.Held.Items[1], d.Held.Items[2], d.Held.Items[4], d.Held.Items[5]
		if !short.Failing || !strings.Contains(short.LastError, errSick.Error()) || short.State != "held" || short.NextRenewal == nil || short.Lease != 6 {
			t.Errorf("failing: %+v", short)
		}
		// After 18 of 21 s, less the margin of 212 ms.
		if !fixed.Expiring || fixed.Failing || fixed.NextRenewal != nil || fixed.Remaining != 2.788 || fixed.Deadline.Sub(d.Time) != 2788*time.Millisecond {
			t.Errorf("expiring: %+v", fixed)
		}
		if overheld.State != "canceled" || overheld.Reason != "max_hold" || overheld.NextRenewal != nil || overheld.Expiring || overheld.Age != 5 {
			t.Errorf("canceled: %+v", overheld)
		}
		if busy.Waiters != 2 || busy.Kind != "mutex" || busy.Group != "busy" || busy.Token == 0 || busy.Owner != r.held["busy:1"].Owner() {
			t.Errorf("waited for: %+v", busy)
		}
		if long.Failing || long.NextRenewal.Sub(d.Time) <= 0 {
			t.Errorf("not yet due: %+v", long)
		}
		for _, w := range d.Waiting.Items {
			if w.Name != "busy:1" || w.State != "waiting" || w.WaitsFor != busy.Owner || w.Age != 18 || w.Token != 0 {
				t.Errorf("waiting: %+v", w)
			}
		}
		if d.Waiting.Total != 2 || d.Ended.names() != "deleted stolen" {
			t.Errorf("%d wait, ended %s", d.Waiting.Total, d.Ended.names())
		}
		if e := d.Ended.Items[1]; e.State != "lost" || e.Why != "taken" || e.Error == "" || e.Age < 20 || e.Age > 21 || !e.Ended.After(e.Since) {
			t.Errorf("lost: %+v", e)
		}
	})
}

// A lease that was granted by message is trusted for less than its length until its first renewal, and isn't about to expire for that.
func TestGrantByMessageIsNotExpiring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var l *lock.Lease
		for range 10 { // one release in 64 grants nothing
			holder, err := r.srv.NewClient().Mutex("job").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan *lock.Lease, 1)
			go func() {
				l, _ := r.srv.Client().Mutex("job").Lock(context.Background())
				got <- l
			}()
			time.Sleep(time.Second)
			if err := holder.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if l = <-got; time.Until(l.Deadline()) < 5*time.Second {
				break
			}
			_ = l.Release(t.Context())
		}
		r.held["job"] = l
		if left := time.Until(l.Deadline()); left > 5*time.Second {
			t.Fatalf("it is trusted for %v: no message has granted it", left)
		}
		if s := r.json("").Summary; s.Expiring != 0 || s.Held != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestNextOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := troubled(t)
		for _, name := range []string{"steady", "long"} {
			r.wait(name)
			time.Sleep(time.Millisecond)
		}
		for sort, want := range map[string]string{
			"age":       "steady busy:1 fixed long overheld short",
			"name":      "busy:1 fixed long overheld short steady",
			"remaining": "short fixed overheld long steady busy:1",
		} {
			d := r.json("?sort=" + sort)
			if got := d.Held.names(); got != want {
				t.Errorf("by %s: %s; want %s", sort, got, want)
			}
			waiting := "busy:1 busy:1 steady long"
			if sort == "name" {
				waiting = "busy:1 busy:1 long steady"
			}
			if got := d.Waiting.names(); got != waiting {
				t.Errorf("waiting by %s: %s; want %s", sort, got, waiting)
			}
			if ended := d.Ended.names(); ended != "deleted stolen" {
				t.Errorf("ended by %s: %s", sort, ended)
			}
		}
	})
}

func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := troubled(t)
		for query, want := range map[string]string{
			"?q=S":                                "short steady busy:1 | busy:1 busy:1 | stolen",
			"?q=BUSY":                             "busy:1 | busy:1 busy:1 | ",
			"?q=" + r.held["busy:1"].Owner():      "busy:1 | busy:1 busy:1 | ",
			"?q=worker-7&state=lost":              " |  | deleted stolen",
			"?q=nothing":                          " |  | ",
			"?group=busy":                         "busy:1 | busy:1 busy:1 | ",
			"?group=bus":                          " |  | ",
			"?group=default&q=ST":                 "steady |  | stolen",
			"?state=held&sort=name":               "busy:1 fixed long short steady |  | ",
			"?state=failing":                      "short |  | ",
			"?state=expiring&q=fixed":             "fixed |  | ",
			"?state=canceled":                     "overheld |  | ",
			"?state=waiting":                      " | busy:1 busy:1 | ",
			"?state=lost":                         " |  | deleted stolen",
			"?state=closed":                       " |  | ",
			"?q=&group=&state=&sort=&page=&per=":  "short fixed overheld steady busy:1 long | busy:1 busy:1 | deleted stolen",
			"?sort=name&per=2&page=2":             "long overheld |  | ",
			"?sort=name&per=2&page=9&refresh=off": " |  | ",
		} {
			d := r.json(query)
			if got := strings.Join([]string{d.Held.names(), d.Waiting.names(), d.Ended.names()}, " | "); got != want {
				t.Errorf("%s: %s; want %s", query, got, want)
			}
			if query == "?sort=name&per=2&page=2" && (d.Held.Pages != 3 || d.Held.Total != 6 || !slices.Equal(d.Groups, []string{"busy", "default"})) {
				t.Errorf("%d pages of 2, %d in all, groups %q", d.Held.Pages, d.Held.Total, d.Groups)
			}
			if d.Summary.Held != 6 || d.Summary.Waiting != 2 || d.Summary.LostLastHour != 2 {
				t.Errorf("%s: the summary is that of a filter: %+v", query, d.Summary)
			}
		}
	})
}

func TestCanceledAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		r.hold([]string{"left"}, lock.WithLifetime(ctx))
		r.hold([]string{"kept"})
		cancel(errors.New("the request is over"))
		synctest.Wait()
		if d := r.json(""); d.Summary.Canceled != 1 || d.Held.names() != "left kept" || d.Held.Items[0].Reason != "context" {
			t.Errorf("winding down: %+v", d.Held)
		}
		r.srv.DelayReleases(time.Second)
		released := make(chan error, 1)
		go func() { released <- r.held["left"].Release(context.Background()) }()
		time.Sleep(time.Second / 2)
		if d := r.json("?state=held"); d.Summary.Canceled != 0 || d.Held.names() != "kept left" || d.Held.Items[1].State != "releasing" || d.Held.Items[1].Reason != "context" {
			t.Errorf("being released: %+v, %+v", d.Summary, d.Held)
		}
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		r.srv.Close() // waits for a second, then leaves "kept" to Redis
		d := r.json("?sort=name")
		if d.Ended.names() != "kept left" || d.Summary.Held != 0 || d.Summary.CanceledLastHour != 2 || d.Summary.LostLastHour != 0 {
			t.Fatalf("after Close: %+v", d)
		}
		if kept, left := d.Ended.Items[0], d.Ended.Items[1]; kept.State != "closed" || kept.Why != "closed" || left.State != "canceled" || left.Why != "context" {
			t.Errorf("ended: %+v", d.Ended.Items)
		}
		time.Sleep(time.Hour + time.Second)
		if d := r.json(""); d.Ended.Total != 0 || d.Summary.CanceledLastHour != 0 {
			t.Errorf("after an hour: %+v", d.Ended)
		}
	})
}

func TestForgottenEndsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		end := func(n int, how func()) {
			for range n {
				r.hold([]string{"brief"})
				how()
				<-r.held["brief"].Ended()
				synctest.Wait()
			}
		}
		lose := func() { r.srv.Lose("brief", lock.CauseMissing) }
		release := func() {
			if err := r.held["brief"].Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r.hold([]string{"stolen"})
		r.srv.Lose("stolen", lock.CauseTaken)
		<-r.held["stolen"].Ended()
		stolen := time.Now().UTC()
		time.Sleep(time.Minute)
		end(1, lose)
		second := time.Now().UTC()
		end(998, lose)
		end(1001, release) // push nothing out
		d := r.json("")
		if d.Summary.LostLastHour != 1000 || r.json("?q=stolen").Ended.Total != 1 {
			t.Fatalf("with 1,000 lost leases: %+v", d.Summary)
		}
		// The thousandth may have been the first there ever was; it can't be told.
		if since := d.Summary.EndedSince; !since.Equal(stolen) {
			t.Errorf("known are those since %v, want %v", since, stolen)
		}
		end(1, lose)
		time.Sleep(time.Until(second.Add(5 * time.Minute)))
		d = r.json("")
		if since := d.Summary.EndedSince; r.json("?q=stolen").Ended.Total != 0 || !since.Equal(second) {
			t.Errorf("with one more: known are those since %v, want %v, %+v", since, second, d.Summary)
		}
		time.Sleep(time.Hour)
		if d := r.json(""); d.Time.Sub(d.Summary.EndedSince) != time.Hour {
			t.Error("said although an hour is known")
		}
	})
}

func TestSeveralClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tracetest.NewSpanRecorder()))
		r := newRig(t, lock.WithTracerProvider(tp))
		r.hold([]string{"a"})
		other := r.srv.NewClient(lock.WithClientID("other"))
		r.srv.Hold("java", "a java process")
		r.wait("java")
		l, err := other.Mutex("b").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Release(context.Background()) }()
		synctest.Wait()
		r.page = lockdebug.Handler(lockdebug.Options{
			Clients:  []*lock.Client{nil, r.srv.Client(), other, r.srv.Client(), nil},
			TraceURL: "https://jaeger.example.com/trace/{trace_id}?uiEmbed=v0",
		})
		d := r.json("?sort=name")
		if d.Held.names() != "a b" || d.Clients != 2 || len(d.Warnings) != 0 {
			t.Fatalf("%+v", d)
		}
		if w := d.Waiting.Items[0]; w.WaitsFor != "a java process" {
			t.Errorf("waiting: %+v", w)
		}
		for _, row := range append(d.Held.Items, d.Waiting.Items...) {
			link := "https://jaeger.example.com/trace/" + row.TraceID + "?uiEmbed=v0"
			if len(row.TraceID) != 32 || row.TraceURL != link {
				t.Errorf("trace of %s: %q, %q", row.Name, row.TraceID, row.TraceURL)
			}
			if found := r.json("?q=" + strings.ToUpper(row.TraceID)); found.Held.Total+found.Waiting.Total != 1 {
				t.Errorf("not found by its trace: %s", row.Name)
			}
		}
	})
}

func TestNobody(t *testing.T) {
	for _, clients := range [][]*lock.Client{nil, {nil}, {locktest.New(t).Client()}} {
		r := &rig{t: t, page: lockdebug.Handler(lockdebug.Options{Clients: clients})}
		raw := ask(r.page, http.MethodGet, "/?format=json").Body.String()
		if strings.Count(raw, `"items": []`) != 3 || strings.Contains(raw, "null") {
			t.Errorf("JSON: %s", raw)
		}
		if d := r.json(""); d.Held.Pages != 1 || d.Page != 1 || d.PerPage != 100 || d.Time.Sub(d.Summary.EndedSince) != time.Hour || d.PID == 0 {
			t.Errorf("%+v", d)
		}
	}
}
