package lockdebug_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// keep holds a lock, for which three others wait.
func (r *rig) keep(t *testing.T, m *lock.Mutex, d time.Duration) {
	t.Helper()
	l, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for range 3 {
		go func() { done <- m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }) }()
	}
	time.Sleep(d)
	if err := errors.Join(l.Release(t.Context()), <-done, <-done, <-done); err != nil {
		t.Fatal(err)
	}
}

func TestBusiestLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lock.WithContentionProfile(1))
		if d := r.json(""); d.Busiest == nil || len(d.Busiest) != 0 {
			t.Errorf("without a lock: %+v", d.Busiest)
		}
		c := r.srv.Client()
		r.keep(t, c.Mutex("orders:1"), 3*time.Second)
		r.keep(t, c.Mutex("stock:7"), 6*time.Second)
		r.keep(t, c.Mutex("a\nb<script>"), 87*time.Millisecond)
		d := r.json("")
		if len(d.Busiest) != 3 || d.Busiest[0].Name != "stock:7" || d.Busiest[2].Name != "a\nb<script>" {
			t.Fatalf("%+v", d.Busiest)
		}
		b := d.Busiest[0]
		if b.Kind != "mutex" || b.Group != "stock" || b.Waited < 18 || b.Waited > 18.2 || b.LongestWait < 6 || b.LongestWait > 6.1 ||
			b.Utilization < 0.64 || b.Utilization > 0.68 || b.Grants < 0.42 || b.Grants > 0.46 || b.Samples != 7 || b.Window < 9 ||
			!strings.Contains(b.HeldBy, "lockdebug_test.(*rig).keep ") || !strings.Contains(b.HeldBy, "/busiest_test.go:") || !strings.Contains(b.AwaitedBy, "keep.func") {
			t.Errorf("%+v", b)
		}
		for query, want := range map[string]int{"?group=orders": 1, "?q=STOCK": 1, "?q=nothing": 0, "?state=held": 3} {
			if got := r.json(query).Busiest; len(got) != want {
				t.Errorf("%s: %+v", query, got)
			}
		}
		r.page = lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{c}, RedactName: func(string) string { return "secret" }})
		if text := fmt.Sprint(r.json("").Busiest); strings.Contains(text, "stock:7") || !strings.Contains(text, "secret") {
			t.Error("a name isn't redacted")
		}
	})
}

func TestBusiestAreAHundred(t *testing.T) {
	t.Parallel()
	r := newRig(t, lock.WithContentionProfile(1))
	other := newRig(t, lock.WithContentionProfile(1))
	r.hold(names("a", 90))
	other.hold(names("b", 90))
	page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{r.srv.Client(), other.srv.Client()}})
	var d document
	if err := json.NewDecoder(ask(page, http.MethodGet, "/?format=json").Body).Decode(&d); err != nil || len(d.Busiest) != 100 {
		t.Errorf("%d, %v", len(d.Busiest), err)
	}
}

// The profile is at a path of its own, and with format=profile wherever the page is.
func TestProfile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lock.WithContentionProfile(1))
		r.keep(t, r.srv.Client().Mutex("orders:1"), time.Second)
		for _, target := range []string{"/debug/locks/profile", "/profile", "/debug/locks?format=profile", "/?format=profile&q=x"} {
			w := ask(r.page, http.MethodGet, target)
			p, err := profile.Parse(bytes.NewReader(w.Body.Bytes()))
			if err != nil || w.Code != http.StatusOK || len(p.Sample) != 2 {
				t.Fatalf("%s: %d, %v", target, w.Code, err)
			}
			if got := w.Header().Get("Content-Type"); got != "application/octet-stream" || w.Header().Get("Cache-Control") != "no-store" ||
				w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %v", target, w.Header())
			}
		}
		for target, want := range map[string]string{"/debug/locks/profile?format=json": "application/json", "/profile?format=html": "text/html; charset=utf-8"} {
			if got := ask(r.page, http.MethodGet, target).Header().Get("Content-Type"); got != want {
				t.Errorf("%s: %s", target, got)
			}
		}
		began := time.Now()
		p, err := profile.Parse(ask(r.page, http.MethodGet, "/debug/locks/profile?seconds=7").Body)
		if err != nil || time.Since(began) != 7*time.Second || len(p.Sample) != 0 || p.DurationNanos != 7e9 {
			t.Errorf("of 7 s in which nothing happens: %v, %v, after %v", p, err, time.Since(began))
		}
		if w := ask(r.page, http.MethodHead, "/debug/locks/profile"); w.Code != http.StatusOK || w.Body.Len() != 0 {
			t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
		}
		if w := ask(r.page, http.MethodPost, "/debug/locks/profile"); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", w.Code)
		}
		if w := ask(r.page, http.MethodGet, "/debug/locks/profile?page=0"); w.Code != http.StatusBadRequest {
			t.Errorf("a bad query: %d", w.Code)
		}
	})
}

// If the server's WriteTimeout would end before the profile is written, the request is refused at once. A HEAD isn't
// kept waiting.
func TestProfileThatTakesLongerThanTheServerWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lock.WithContentionProfile(1))
		for _, test := range []struct {
			method, target string
			timeout        time.Duration // of the server; 0: none
			status         int
			takes          time.Duration
		}{
			{http.MethodGet, "/profile?seconds=60", 30 * time.Second, http.StatusBadRequest, 0},
			{http.MethodGet, "/profile?seconds=30", 30 * time.Second, http.StatusBadRequest, 0},
			{http.MethodGet, "/profile?seconds=29", 30 * time.Second, http.StatusOK, 29 * time.Second},
			{http.MethodGet, "/profile?seconds=60", 0, http.StatusOK, time.Minute},
			{http.MethodGet, "/profile", time.Second, http.StatusOK, 0},
			{http.MethodGet, "/?seconds=60", 30 * time.Second, http.StatusOK, 0}, // it isn't the profile
			{http.MethodHead, "/profile?seconds=60", 0, http.StatusOK, 0},
			{http.MethodHead, "/profile?seconds=60", 30 * time.Second, http.StatusBadRequest, 0},
		} {
			ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: test.timeout})
			w, began := httptest.NewRecorder(), time.Now()
			r.page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, test.method, test.target, http.NoBody))
			if took := time.Since(began); w.Code != test.status || took != test.takes {
				t.Errorf("%s %s, WriteTimeout %v: %d after %v; want %d after %v", test.method, test.target, test.timeout, w.Code, took, test.status, test.takes)
			}
			why := "allowed: less than the WriteTimeout of the server, 30s"
			if told := strings.Contains(w.Body.String(), why); told != (w.Code == http.StatusBadRequest && test.method == http.MethodGet) {
				t.Errorf("%s %s, WriteTimeout %v: %s", test.method, test.target, test.timeout, w.Body)
			}
			// How long a GET's response would be isn't known to a HEAD.
			if got := w.Header().Get("Content-Length"); test.method == http.MethodHead && got != "" {
				t.Errorf("HEAD %s: Content-Length %s", test.target, got)
			}
		}
	})
}
