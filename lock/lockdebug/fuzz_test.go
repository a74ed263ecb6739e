package lockdebug_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// FuzzRequest: whatever query, Accept and TraceURL come in, the answer is JSON, or the page as it always is, and says 200 or 400.
func FuzzRequest(f *testing.F) {
	f.Add("q=a&page=2", "text/html", "http://localhost/{trace_id}")
	f.Add("state=%3Cscript%3E&sort=\x00", "application/json;q=0.5, */*", "javascript:{trace_id}")
	f.Add(`q="><img src=x onerror=alert(1)>&group=%00&refresh=off`, "text/html;q=x", `http://a/"><b>{trace_id}`)
	f.Add("format=json&per=1000&q=%ff", "", "//{trace_id}")
	f.Add("%zz", "a/b;q=1.5,,", "http://[::1/{trace_id}")
	r := newRig(f, lock.WithLease(time.Hour))
	r.hold([]string{"orders:42"})
	client := r.srv.Client()
	first := ask(r.page, http.MethodGet, "/?format=html").Body.String()
	f.Fuzz(func(t *testing.T, query, accept, traceURL string) {
		page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{client}, TraceURL: traceURL})
		req := httptest.NewRequest(http.MethodGet, "/debug/locks", nil)
		req.URL.RawQuery = query
		req.Header["Accept"] = []string{accept}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, req)
		kind, body := w.Header().Get("Content-Type"), w.Body.String()
		if kind == "application/octet-stream" { // the profile
			return
		}
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest || !utf8.ValidString(body) {
			t.Fatalf("%q: %d, %s", query, w.Code, kind)
		}
		if kind == "application/json" && !json.Valid([]byte(body)) || kind != "application/json" && body != first {
			t.Errorf("%q: %s: %.200s", query, kind, body)
		}
	})
}
