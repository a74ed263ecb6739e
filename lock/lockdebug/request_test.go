package lockdebug_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

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
		if w := ask(page, http.MethodGet, "/debug/locks"+query, "Accept", "text/html"); w.Code != http.StatusBadRequest || !strings.HasPrefix(w.Body.String(), "<!DOCTYPE html>") {
			t.Errorf("%s: %d, %.50s; want 400 and the page, which asks what is wrong", query, w.Code, w.Body)
		}
		w := ask(page, http.MethodGet, "/debug/locks"+query)
		var refused struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil || w.Code != http.StatusBadRequest || !strings.Contains(refused.Error, says) {
			t.Errorf("%s: %d, %s, %v; want 400 and %q", query, w.Code, w.Body, err, says)
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
	for _, target := range []string{"/", "/?format=html", "/?page=0"} {
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
			if !regexp.MustCompile(`^default-src 'none'; style-src 'sha256-[^']+'; script-src 'sha256-[^']+'; connect-src 'self'; .*; require-trusted-types-for 'script'`).MatchString(policy) {
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
		{nil, "", true},
		{[]string{"*/*"}, "", true}, // curl
		{[]string{"application/json"}, "", true},
		{[]string{"application/json", "text/html"}, "", false},
		{[]string{"application/json; q=0.9, text/html;q=0.8"}, "", true},
		{[]string{"application/json;q=0.8,text/html"}, "", false},
		{[]string{"text/html;q=0.8", "application/*"}, "", true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, "", false}, // browsers
		{[]string{"text/html, text/*;q=0.5, image/*, application/*"}, "", false},                 // w3m
		{[]string{"application/json, text/plain, */*"}, "", true},
		{[]string{"application/json, */*;q=0.1"}, "", true},
		{[]string{"text/*, */*;q=0.1"}, "", false},
		{[]string{"text/*;q=0, */*"}, "", true},
		{[]string{"application/json;q=0, */*"}, "", false},
		{[]string{"text/html;q=nan"}, "", true},
		{[]string{"text/html;q=2"}, "", true},
		{[]string{"image/png"}, "", true},
		{[]string{",;;=,/"}, "", true},
		{[]string{"TEXT/HTML"}, "", false},
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
	}
}

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

// Names are in the JSON as they are, and can be asked for.
func TestNames(t *testing.T) {
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
		for _, name := range evil {
			if d := r.json("?q=" + url.QueryEscape(name)); d.Waiting.Total == 0 || d.Waiting.Items[0].Name != name {
				t.Errorf("not found: %q", name)
			}
		}
		if raw := ask(r.page, http.MethodGet, "/").Body.String(); strings.ContainsAny(raw, "<>&\x00") {
			t.Error("it would be markup where it is taken for HTML")
		}
	})
}
