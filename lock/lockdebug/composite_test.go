package lockdebug_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/lock/locktest"
)

// newQuorum is one of three fake servers, and a page of its clients.
func newQuorum(t *testing.T) (*lock.Quorum, []*locktest.Server, *rig) {
	t.Helper()
	var servers []*locktest.Server
	var clients []*lock.Client
	for range 3 {
		srv := locktest.New(t, lock.WithLease(9*time.Second), lock.WithLogger(slog.New(slog.DiscardHandler)))
		servers, clients = append(servers, srv), append(clients, srv.Client())
	}
	q, err := lock.NewQuorum(clients...)
	if err != nil {
		t.Fatal(err)
	}
	return q, servers, &rig{t: t, srv: servers[0], page: lockdebug.Handler(lockdebug.Options{Clients: clients})}
}

func TestQuorumIsOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, servers, r := newQuorum(t)
		servers[2].Hold("job", "java")
		l, err := q.Mutex("job").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d := r.json("")
		if d.Summary.Held != 1 || d.Summary.Degraded != 1 || d.Summary.Failing != 0 || d.Held.Total != 1 {
			t.Fatalf("summary: %+v, %+v", d.Summary, d.Held)
		}
		got := d.Held.Items[0]
		if got.Kind != "quorum" || got.State != "held" || !got.Degraded || got.Failing || got.Have != 2 || got.Need != 2 || got.states() != "held held absent" ||
			got.Node != "" || got.Owner != l.Owner() || got.Token != l.Token() || !strings.Contains(got.Members[2].LastError, `held by "java"`) {
			t.Errorf("two of three: %+v", got)
		}
		if d := r.json("?state=degraded&q=" + got.Members[1].Owner); d.Held.Total != 1 {
			t.Errorf("not found by the owner at one of its nodes")
		}

		servers[1].FailRenewals(errSick)
		time.Sleep(5 * time.Second)
		d = r.json("")
		if got = d.Held.Items[0]; d.Summary.Failing != 1 || !got.Failing || got.FailingFor <= 0 || !got.Members[1].Failing || got.Members[0].Failing || !strings.Contains(got.LastError, errSick.Error()) {
			t.Errorf("it can't be renewed at a majority: %+v", got)
		}

		<-l.Ended()
		synctest.Wait()
		d = r.json("")
		got = d.Held.Items[0]
		if d.Summary.LostLastHour != 1 || d.Summary.Canceled != 1 || got.State != "lost" || got.Have != 1 || got.states() != "canceled lost absent" {
			t.Errorf("lost: %+v, %+v", d.Summary, got)
		}
		if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
		d = r.json("")
		if end := d.Ended.Items[0]; d.Summary.Held != 0 || d.Ended.Total != 1 || end.State != "lost" || end.Why != "unreachable" || end.Kind != "quorum" || end.states() != "canceled lost" {
			t.Errorf("ended: %+v", d.Ended)
		}
	})
}

// A Quorum that stays held without a node is shown as degraded, and not as lost.
func TestQuorumThatWasHeldOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, servers, r := newQuorum(t)
		l, err := q.Mutex("job").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		servers[1].Lose("job", lock.CauseMissing)
		time.Sleep(time.Second)
		d := r.json("")
		if d.Summary.LostLastHour != 0 || d.Summary.Degraded != 1 || d.Held.Items[0].states() != "held lost held" || d.Ended.Total != 1 {
			t.Fatalf("%+v", d)
		}
		if end := d.Ended.Items[0]; end.State != "degraded" || end.states() != "lost" || end.Why != "missing" {
			t.Errorf("ended: %+v", end)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := r.json(""); d.Summary.Held != 0 || d.Summary.CanceledLastHour != 0 {
			t.Errorf("released: %+v", d.Summary)
		}
	})
}

func TestMultiIsOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.srv.Hold("b", "java")
		begin := func(m lock.Locker) (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- m.Do(ctx, func(context.Context, *lock.Lease) error { return nil }) }()
			return func() {
				cancel()
				if err := <-done; !errors.Is(err, lock.ErrHeld) {
					t.Error(err)
				}
			}
		}
		c := r.srv.Client()
		leave := begin(c.Multi([]string{"a", "b", "c"}))
		time.Sleep(time.Second)
		leaveToo := begin(c.Mutex("a"))
		l, err := c.Multi([]string{"x", "y"}).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d := r.json("?sort=name")
		if d.Summary.Held != 1 || d.Summary.Waiting != 2 || d.Held.names() != "x,y" || d.Waiting.names() != "a a,b,c" {
			t.Fatalf("%+v", d)
		}
		if got := d.Held.Items[0]; got.Kind != "multi" || got.Degraded || got.Have != 2 || got.Need != 2 || got.Members[1].Name != "y" || got.Members[1].Node != "fake" {
			t.Errorf("held: %+v", got)
		}
		if got := d.Waiting.Items[1]; got.Kind != "multi" || got.WaitsFor != "java" || got.Have != 1 || got.states() != "held waiting absent" || got.Members[0].Owner != d.Waiting.Items[0].WaitsFor {
			t.Errorf("waiting: %+v", got)
		}
		leaveToo()
		leave()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// What is redacted is nowhere: not in errors, not in the order, and not to be found.
func TestRedaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lock.WithClientID("tenant-4711"), lock.WithGroup("cart"))
		hidden := func(as string, secrets map[string]string) func(string) string {
			return func(s string) string {
				if secrets[s] == "" {
					secrets[s] = fmt.Sprintf("%s-%d", as, 9999-len(secrets))
				}
				return secrets[s]
			}
		}
		names, owners := map[string]string{}, map[string]string{}
		r.page = lockdebug.Handler(lockdebug.Options{
			Clients: []*lock.Client{r.srv.Client()}, RedactName: hidden("hidden", names), RedactOwner: hidden("secret", owners),
		})
		r.hold([]string{"4711", "user:4711/\"a\"", "lost:4711", "forced:4711", "short:4711", "id"}, lock.WithLease(6*time.Second))
		m, err := r.srv.Client().Multi([]string{"cart:4711", "pay:4711"}).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.held["multi"] = m
		r.wait("pay:4711")
		r.srv.Lose("lost:4711", lock.CauseTaken)
		r.srv.Lose("cart:4711", lock.CauseMissing)
		if _, err := r.srv.NewClient(lock.WithClientID("operator-4711")).Mutex("forced:4711").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		r.srv.FailRenewals(fmt.Errorf(`ERR key 4711 of tenant-4711: lock "id", %w`, errors.Join(
			&lock.HeldError{Name: "other:4711", Owner: "java-4711"}, &lock.HeldError{Name: "another:4711", Owner: "go-4711"})))
		time.Sleep(3 * time.Second)
		d := r.json("?per=1000")
		if d.Summary.Failing == 0 || d.Ended.Total != 3 || d.Waiting.Total != 1 || len(names) < 8 || len(owners) < 3 {
			t.Fatalf("%+v, %d names, %d owners", d.Summary, len(names), len(owners))
		}
		all := ask(r.page, http.MethodGet, "/?format=json").Body.String()
		if at := strings.Index(all, "4711"); at >= 0 || strings.Contains(all, `lock \"id\"`) {
			t.Errorf("...%s...", all[max(at-200, 0):min(max(at, 0)+50, len(all))])
		}
		if !strings.Contains(all, `"last_error": "error: network"`) || !strings.Contains(all, `"error": "lost: taken"`) {
			t.Error("the kinds of the errors aren't shown")
		}
		if d := r.json("?q=user"); d.Held.Total != 0 {
			t.Error("found by what isn't shown")
		}
		if d := r.json("?q=" + names["short:4711"]); d.Held.names() != names["short:4711"] {
			t.Errorf("by what is shown: %s", d.Held.names())
		}
		var ordered []string
		for _, row := range r.json("?sort=name").Held.Items {
			ordered = append(ordered, row.Name)
			if row.Group != "cart" {
				t.Errorf("group %q", row.Group)
			}
		}
		if !strings.HasPrefix(strings.Join(ordered, " "), "hidden-") || ordered[0] > ordered[len(ordered)-1] {
			t.Errorf("ordered %v", ordered)
		}
		w := d.Waiting.Items[0]
		for _, of := range d.Held.Items {
			for _, member := range of.Members {
				if member.Name == w.Name && (member.Owner != w.WaitsFor || of.Waiters != 1) {
					t.Errorf("%+v waits for %+v", w, of)
				}
			}
		}
		r.srv.FailRenewals(nil)
	})
}

// A Multi is shown by its names, each redacted, and a Mutex whose name reads the same as one name, wherever it stands.
func TestRedactionOfAListAndAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.page = lockdebug.Handler(lockdebug.Options{
			Clients: []*lock.Client{r.srv.Client()}, RedactName: func(s string) string { return "<" + s + ">" },
		})
		m, err := r.srv.Client().Multi([]string{"a", "b"}).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.held["multi"] = m
		r.hold([]string{"a,b"})
		r.wait("a,b")
		time.Sleep(time.Second)
		d := r.json("?sort=name")
		if held, waiting := d.Held.names(), d.Waiting.names(); held != "<a,b> <a>,<b>" || waiting != "<a,b>" {
			t.Errorf("held %s, waiting %s", held, waiting)
		}
	})
}
