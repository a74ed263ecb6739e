package lockdebug_test

import (
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

func TestBadQueries(t *testing.T) {
	page := lockdebug.Handler(lockdebug.Options{})
	for query, says := range map[string]string{
		"?page=0":                            `page is "0"; allowed: 1 to 1000000`,
		"?page=-1":                           "allowed: 1 to 1000000",
		"?page=1000001":                      "allowed: 1 to 1000000",
		"?page=99999999999999999999":         "allowed: 1 to 1000000",
		"?page=two":                          "allowed: 1 to 1000000",
		"?per=1001":                          "allowed: 1 to 1000",
		"?per=0":                             "allowed: 1 to 1000",
		"?refresh=0":                         "allowed: off, or 1 to 3600",
		"?refresh=1.5":                       "allowed: off, or 1 to 3600",
		"?state=gone":                        "allowed: held, failing, expiring, degraded, canceled, waiting, lost, closed",
		"?sort=token":                        "allowed: trouble, age, remaining, name",
		"?format=xml":                        "allowed: html, json, profile",
		"?q=" + strings.Repeat("x", 1025):    "q has 1025 bytes; at most 1024",
		"?group=" + strings.Repeat("é", 513): "group has 1026 bytes",
		"?q=%zz":                             "invalid URL escape",
		"?q=a;page=2":                        "semicolon",
		"?state=<script>":                    `state is "<script>"`,
	} {
		for _, accept := range []string{"text/html", "application/json"} {
			w := ask(page, http.MethodGet, "/debug/locks"+query, "Accept", accept)
			text := html.UnescapeString(w.Body.String())
			if accept == "application/json" {
				var refused struct{ Error string }
				if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil {
					t.Errorf("%s: %v", query, err)
				}
				text = refused.Error
			} else if strings.Contains(w.Body.String(), "<script") || strings.Contains(w.Body.String(), "http-equiv") {
				t.Errorf("%s: not escaped, or loads itself again", query)
			}
			if w.Code != http.StatusBadRequest || !strings.Contains(text, says) {
				t.Errorf("%s as %s: %d, %s; want 400 and %q", query, accept, w.Code, text, says)
			}
		}
	}
	both := ask(page, http.MethodGet, "/?page=x&per=y&format=json").Body.String()
	if !strings.Contains(both, "page is") || !strings.Contains(both, "per is") || !json.Valid([]byte(both)) {
		t.Errorf("two mistakes, in the format asked for: %s", both)
	}
}

func TestMethodsAndHeaders(t *testing.T) {
	page := lockdebug.Handler(lockdebug.Options{})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "LOCK"} {
		w := ask(page, method, "/")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	for _, target := range []string{"/", "/?format=json", "/?page=0"} {
		get, head := ask(page, http.MethodGet, target), ask(page, http.MethodHead, target)
		if head.Body.Len() != 0 || head.Code != get.Code || get.Header().Get("Content-Length") != fmt.Sprint(get.Body.Len()) {
			t.Errorf("HEAD %s: %d with %d bytes; GET: %d, Content-Length %s", target, head.Code, head.Body.Len(), get.Code, get.Header().Get("Content-Length"))
		}
		for _, h := range []http.Header{get.Header(), head.Header()} {
			for key, want := range map[string]string{
				"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Vary": "Accept",
			} {
				if h.Get(key) != want {
					t.Errorf("%s: %s is %q", target, key, h.Get(key))
				}
			}
			policy := h.Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "script") {
				t.Errorf("%s: Content-Security-Policy: %s", target, policy)
			}
		}
	}
}

func TestAccept(t *testing.T) {
	page := lockdebug.Handler(lockdebug.Options{})
	for _, c := range []struct {
		accept []string
		query  string
		json   bool
	}{
		{nil, "", false},
		{[]string{"*/*"}, "", false},
		{[]string{"application/json"}, "", true},
		{[]string{"application/json", "text/html"}, "", false},
		{[]string{"application/json; q=0.9, text/html;q=0.8"}, "", true},
		{[]string{"application/json;q=0.8,text/html"}, "", false},
		{[]string{"text/html;q=0.8", "application/*"}, "", true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, "", false},
		{[]string{"application/json, text/plain, */*"}, "", false},
		{[]string{"application/json, */*;q=0.1"}, "", true},
		{[]string{"text/*;q=0, */*"}, "", true},
		{[]string{"application/json;q=0"}, "", false},
		{[]string{"application/json;q=nan"}, "", false},
		{[]string{"application/json;q=2"}, "", false},
		{[]string{"image/png"}, "", false},
		{[]string{",;;=,/"}, "", false},
		{[]string{"APPLICATION/JSON"}, "", true},
		{[]string{"text/html"}, "?format=json", true},
		{[]string{"application/json"}, "?format=html", false},
	} {
		var headers []string
		for _, a := range c.accept {
			headers = append(headers, "Accept", a)
		}
		got := ask(page, http.MethodGet, "/"+c.query, headers...).Header().Get("Content-Type")
		if want := map[bool]string{true: "application/json", false: "text/html; charset=utf-8"}[c.json]; got != want {
			t.Errorf("Accept %q%s: %s; want %s", c.accept, c.query, got, want)
		}
	}
}

func TestTraceURLs(t *testing.T) {
	for template, says := range map[string]string{
		"": "",
		"http://localhost:16686/trace/{trace_id}":                 "",
		"https://grafana/explore?left={\"query\":\"{trace_id}\"}": "",
		"https://ui/#/trace/{trace_id}":                           "",
		"https://ui/trace/":                                       "no {trace_id}",
		"/trace/{trace_id}":                                       "no absolute http or https URL",
		"javascript:alert('{trace_id}')":                          "no absolute http or https URL",
		"ftp://ui/{trace_id}":                                     "no absolute http or https URL",
		"//ui/{trace_id}":                                         "no absolute http or https URL",
		"https:///{trace_id}":                                     "no absolute http or https URL",
		"https://{trace_id}.ui/":                                  "not used",
		"https://ui:{trace_id}/":                                  "not used",
		"{trace_id}://ui/":                                        "not used",
		"https://ui/\x01{trace_id}<script>":                       "not used",
	} {
		r := &rig{t: t, page: lockdebug.Handler(lockdebug.Options{TraceURL: template})}
		warnings := strings.Join(r.json("").Warnings, "\n")
		if (says == "") != (warnings == "") || !strings.Contains(warnings, says) {
			t.Errorf("%q: %q; want %q", template, warnings, says)
		}
		if page := r.html(""); strings.Contains(page, `role="alert"`) != (says != "") || !strings.Contains(html.UnescapeString(page), warnings) {
			t.Errorf("%q: the page doesn't say %q", template, warnings)
		}
	}
}

var textField = regexp.MustCompile(`name="q" value="([^"]*)"`)

// evil are names that would like to be something else.
var evil = []string{
	`<script>document.title="owned"</script>`,
	`"><img src=x onerror=alert(1)>`,
	`</style></title><h1>hello`,
	"{{.}} &amp; ${x} `y`",
	"user\u202egnp.exe\u200f",
	"two\nlines\tand\x00nul",
	"javascript:alert(1)",
	"שלום:עולם",
	"a  b",
	strings.Repeat("long", 256),
}

func TestEscapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.hold(evil)
		for _, name := range evil {
			r.wait(name)
		}
		for _, name := range evil[:2] {
			r.srv.Lose(name, lock.CauseTaken)
		}
		synctest.Wait()
		page := r.html("")
		if strings.Contains(page, "<script") || strings.Contains(page, "<img") || strings.Count(page, "<h1>") != 1 || strings.Count(page, "</style>") != 1 {
			t.Error("a name became markup")
		}
		if !utf8.ValidString(page) || strings.ContainsAny(page, "\u202e\u200f\x00") {
			t.Error("a name changes the text around it")
		}
		for _, shown := range []string{`"user\u202egnp.exe\u200f"`, `"two\nlines\tand\x00nul"`, `<script>document.title="owned"</script>`, "שלום:עולם", "a  b", evil[9]} {
			if cell := `<th scope="row"><bdi>` + escape(shown) + "</bdi></th>"; !strings.Contains(page, cell) {
				t.Errorf("not on the page: %s", cell)
			}
		}
		d := r.json("?per=1000")
		seen := map[string]bool{}
		for _, row := range append(d.Held.Items, append(d.Waiting.Items, d.Ended.Items...)...) {
			seen[row.Name] = true
		}
		for _, name := range evil {
			if !seen[name] {
				t.Errorf("JSON has another name than %q", name)
			}
			q := "?q=" + url.QueryEscape(name)
			if d := r.json(q); d.Waiting.Total == 0 {
				t.Errorf("not found: %q", name)
			}
			kept := textField.FindStringSubmatch(r.html(q))
			if kept == nil || html.UnescapeString(kept[1]) != strings.ReplaceAll(name, "\x00", "\ufffd") {
				t.Errorf("%s: the form keeps %q", q, kept)
			}
		}
	})
}

// escape is how html/template writes text.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "+", "&#43;", "`", "&#96;").Replace(s)
}

func TestInvalidUTF8InErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lock.WithWatchdog(time.Second))
		r.srv.FailRenewals(fmt.Errorf("garbage: \xff\xfe %w", errSick))
		r.hold([]string{"a"})
		time.Sleep(500 * time.Millisecond)
		raw := ask(r.page, http.MethodGet, "/?format=json").Body.Bytes()
		if !json.Valid(raw) || !utf8.Valid(raw) || !strings.Contains(string(raw), "garbage") {
			t.Errorf("JSON: %s", raw)
		}
		if page := r.html(""); !utf8.ValidString(page) || !strings.Contains(page, `garbage: \xff\xfe`) {
			t.Error("the error isn't readable")
		}
	})
}

var href = regexp.MustCompile(`href="(\?[^"#]*)`)

// TestLinks follows every link of the page, with a query that must be kept.
func TestLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.hold(names("a&b", 5))
		r.wait("a&b:0001")
		synctest.Wait()
		const query = "?q=%26&per=2&page=2&sort=name&refresh=off&group=a%26b&state=held"
		links := map[string]bool{}
		for _, m := range href.FindAllStringSubmatch(r.html(query), -1) {
			links[html.UnescapeString(m[1])] = true
		}
		for link := range links {
			if w := ask(r.page, http.MethodGet, "/debug/locks"+link); w.Code != http.StatusOK {
				t.Errorf("%s: %d", link, w.Code)
			}
		}
		for _, want := range []string{
			"?", // show everything
			"?group=a%26b&page=3&per=2&q=%26&refresh=off&sort=name&state=held",
			"?group=a%26b&per=2&q=%26&refresh=off&sort=name&state=held", // page 1
			"?group=a%26b&page=2&per=2&q=%26&sort=name&state=held",      // go on
			"?format=json&group=a%26b&page=2&per=2&q=%26&sort=name&state=held",
			"?per=2&refresh=off&sort=name&state=failing",
		} {
			if !links[want] {
				t.Errorf("no link to %s among %v", want, slices.Sorted(maps.Keys(links)))
			}
		}
		if page := r.html(query); strings.Contains(page, "http-equiv") || strings.Contains(page, "<form method=\"get\" action") ||
			!strings.Contains(page, `<input type="hidden" name="per" value="2">`) || !strings.Contains(page, `<input type="hidden" name="refresh" value="off">`) {
			t.Error("the form forgets, or a paused page loads itself")
		}
		if page := r.html("?refresh=60"); !strings.Contains(page, `<meta http-equiv="refresh" content="60">`) {
			t.Error("no refresh after 60 s")
		}
	})
}

func TestThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var taken sync.WaitGroup // together they are few calls
		for _, name := range names("bulk", 2_500) {
			taken.Go(func() {
				if _, err := r.srv.Client().Mutex(name, lock.WithFixedLease(time.Hour)).TryLock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		taken.Wait()
		seen := map[string]bool{}
		for page := 1; page <= 2; page++ {
			d := r.json(fmt.Sprintf("?per=1000&page=%d", page))
			if d.Held.Total != 2_500 || d.Held.Pages != 3 || len(d.Held.Items) != 1000 {
				t.Fatalf("page %d: %d in all, %d here, %d pages", page, d.Held.Total, len(d.Held.Items), d.Held.Pages)
			}
			for _, row := range d.Held.Items {
				seen[row.Name] = true
			}
		}
		if len(seen) != 2_000 {
			t.Errorf("%d of 2,000 on the pages", len(seen))
		}
		page := r.html("?page=25")
		if strings.Count(page, "<tr") != 101 || !strings.Contains(page, "2,500, here 2,401 to 2,500") || !strings.Contains(page, "page 25 of 25") || strings.Contains(page, ">next<") || !strings.Contains(page, `href="?group=bulk"`) {
			t.Error("the last page is wrong")
		}
		if page := r.html("?page=40"); !strings.Contains(page, "Nothing is on this page.") || !strings.Contains(page, `href="?page=25#held"`) {
			t.Error("no way back from behind the last page")
		}
		if d := r.json("?q=bulk:19"); d.Held.Total != 100 || d.Held.Pages != 1 {
			t.Errorf("%d match", d.Held.Total)
		}
	})
}
