package lockdebug_test

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// FuzzRequest: whatever query, Accept and TraceURL come in, the answer is a page or JSON, says 200 or 400, and nothing of them is
// markup in it; and its own links are understood.
func FuzzRequest(f *testing.F) {
	f.Add("q=a&page=2", "text/html", "http://localhost/{trace_id}")
	f.Add("state=%3Cscript%3E&sort=\x00", "application/json;q=0.5, */*", "javascript:{trace_id}")
	f.Add(`q="><img src=x onerror=alert(1)>&group=%00&refresh=off`, "text/html;q=x", `http://a/"><b>{trace_id}`)
	f.Add("format=json&per=1000&q=%ff", "", "//{trace_id}")
	f.Add("%zz", "a/b;q=1.5,,", "http://[::1/{trace_id}")
	r := newRig(f, lock.WithWatchdog(time.Hour))
	r.hold([]string{"orders:42"})
	client := r.srv.Client()
	f.Fuzz(func(t *testing.T, query, accept, traceURL string) {
		page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{client}, TraceURL: traceURL})
		ask := func(query string) (int, string, string) {
			req := httptest.NewRequest(http.MethodGet, "/debug/locks", nil)
			req.URL.RawQuery = query
			req.Header["Accept"] = []string{accept}
			w := httptest.NewRecorder()
			page.ServeHTTP(w, req)
			body, err := io.ReadAll(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			return w.Code, w.Header().Get("Content-Type"), string(body)
		}
		code, kind, body := ask(query)
		if code != http.StatusOK && code != http.StatusBadRequest || !utf8.ValidString(body) && !strings.HasPrefix(kind, "text/html") {
			t.Fatalf("%q: %d, %s", query, code, kind)
		}
		if kind == "application/json" {
			if !json.Valid([]byte(body)) {
				t.Errorf("%q: no JSON: %.200s", query, body)
			}
			return
		}
		for _, mark := range []string{"<script", "<img", "<b>{", "<svg", "<iframe", "onerror=\"", "href=\"javascript:"} {
			if strings.Contains(body, mark) {
				t.Errorf("%q: %s is on the page", query, mark)
			}
		}
		if strings.Count(body, "<h1>") != 1 || strings.Count(body, "</style>") != 1 {
			t.Errorf("%q: the page isn't whole", query)
		}
		for _, m := range href.FindAllStringSubmatch(body, -1) {
			if code, _, _ := ask(strings.TrimPrefix(html.UnescapeString(m[1]), "?")); code != http.StatusOK {
				t.Errorf("%q: its link %q is answered with %d", query, m[1], code)
			}
		}
	})
}
