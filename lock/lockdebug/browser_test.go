package lockdebug_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image"
	"image/color"
	_ "image/png" // of screenshots
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// What a browser makes of the page, under the Content-Security-Policy, which Chromium enforces.

// site serves a page under a prefix, and remembers what was asked for.
type site struct {
	*httptest.Server
	asked chan request
}

// request is what was asked for, and when.
type request struct {
	uri string
	at  time.Time
}

const mounted = "/internal/debug/locks"

func newSite(t *testing.T, page http.Handler) *site {
	t.Helper()
	s := &site{asked: make(chan request, 100)}
	mux := http.NewServeMux()
	mux.Handle(mounted, http.StripPrefix("/internal", page))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case s.asked <- request{req.RequestURI, time.Now()}:
		default: // far more than any test looks at
		}
		mux.ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	return s
}

// Chromium takes a second for a page, and many seconds on a busy machine. There it has also hung for ten minutes, beside others that hadn't: so
// one that takes a minute is replaced by another, up to the tenth.
const (
	hangs = time.Minute
	tries = 10
)

// chromium is the command that looks at an address, without a window.
func chromium(t *testing.T, ctx context.Context, address string, flags ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test looks at the page with Chromium, which is missing. Run as root:  apt-get update && apt-get install -y --no-install-recommends chromium")
	}
	cmd := exec.CommandContext(ctx, path, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--enable-logging=stderr", "--user-data-dir=" + t.TempDir(),
	}, append(flags, address)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it takes its children along
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// browse runs Chromium for a second of its own time, which stands still while it waits for an answer, and returns the DOM. The page must
// ask for nothing but itself and its JSON, and be content with its Content-Security-Policy.
func browse(t *testing.T, s *site, query string, flags ...string) string {
	t.Helper()
	var out, log bytes.Buffer
	for try := 1; ; try++ {
		out.Reset()
		log.Reset()
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		cmd := chromium(t, ctx, s.URL+mounted+query, append([]string{"--virtual-time-budget=1500", "--dump-dom"}, flags...)...)
		cmd.Stdout, cmd.Stderr = &out, &log
		err := cmd.Run()
		hung := ctx.Err() != nil
		cancel()
		if err == nil {
			break
		}
		if !hung || try == tries {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, &log)
		}
		t.Logf("Chromium hangs: try %d", try+1)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") && !strings.Contains(line, "the server responded with a status of") {
			t.Errorf("%s: the browser complains: %s", query, line)
		}
	}
	for len(s.asked) > 0 {
		if got := (<-s.asked).uri; got != mounted+query && got != mounted+"?format=json&"+strings.TrimPrefix(query, "?") {
			t.Errorf("the page asked for %s", got)
		}
	}
	return out.String()
}

var (
	unseen  = regexp.MustCompile(`(?s)<(style|script|noscript)>.*?</(style|script|noscript)>|<option>`)
	rowTag  = regexp.MustCompile(`<(?:tr|div|li) class="((?:member )?(?:bad|warn|member))[^"]*">`)
	linkTag = regexp.MustCompile(`<a [^>]*href="([^"]*)"[^>]*>`)
	cellEnd = regexp.MustCompile(`</t[hd]>`)
	block   = regexp.MustCompile(`</?(tr|li|ul|ol|p|h1|h2|div|nav|form|header|section|title|label)\b[^>]*>`)
	anyTag  = regexp.MustCompile(`<[^>]*>`)
	newline = regexp.MustCompile(`\s*\n\s*`)
)

// reads is the DOM as text, a line for each row of a table, with where links lead and what is coloured.
func reads(dom string) string {
	dom = linkTag.ReplaceAllString(rowTag.ReplaceAllString(unseen.ReplaceAllString(dom, ""), "\n[$1] "), "($1) ")
	dom = anyTag.ReplaceAllString(block.ReplaceAllString(cellEnd.ReplaceAllString(dom, " |"), "\n"), "")
	return strings.TrimSpace(html.UnescapeString(newline.ReplaceAllString(dom, "\n"))) + "\n"
}

// serves is a page whose JSON is this one.
func serves(status int, contentType, body string) http.Handler {
	page := lockdebug.Handler(lockdebug.Options{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.RawQuery, "format=json&") {
			page.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

// still returns a page of locks in trouble and of evil names. Its JSON was made once in a bubble, because a browser
// can't run in one.
func still(t *testing.T) (page http.Handler, d document) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := troubled(t, lock.WithContentionProfile(1))
		r.hold(evil)
		d = r.json("?per=1000")
		page = serves(http.StatusOK, "application/json", ask(r.page, http.MethodGet, "/debug/locks?per=1000").Body.String())
	})
	return page, d
}

// TestPage looks at a document that has all that the page can show.
func TestPage(t *testing.T) {
	t.Parallel()
	document := unmarshal(t)
	s := newSite(t, serves(http.StatusOK, "application/json", document))
	shot := filepath.Join(t.ArtifactDir(), "page.png")
	const query = "?q=%26&group=a%26b&per=2&page=2&sort=name&refresh=off"
	dom := browse(t, s, query, "--window-size=1200,1700", "--screenshot="+shot)
	looksDrawn(t, shot, false)
	want, err := os.ReadFile("testdata/page.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := reads(dom); got != string(want) {
		t.Errorf("it reads otherwise than testdata/page.txt:\n%s", got)
	}
	for _, part := range []string{
		`<time datetime="2026-11-26T04:59:58.766Z" title="since 2026-11-26T04:59:58.766Z">1.2 s</time>`, `<option value="a&amp;b">a&amp;b</option>`,
		`<meter aria-label="lease left" max="30" low="6" high="15" optimum="30" value="4.25"></meter>`, `rel="noopener noreferrer">4bf92f3577b34da6a3ce929d0e0e4736</a>`,
		`<a href="?" id="everything">`, `<span title="github.com/acme/shop/orders.(*Service).Change /src/orders/service.go:42">`, `<input type="hidden" name="per" value="2"><input type="hidden" name="refresh" value="off">`,
	} {
		if !strings.Contains(dom, part) {
			t.Errorf("not in the DOM: %s", part)
		}
	}
	page := lockdebug.Handler(lockdebug.Options{})
	links := regexp.MustCompile(`\((\?[^)#]*)`).FindAllStringSubmatch(string(want), -1)
	for _, option := range regexp.MustCompile(`<option>(\w+)`).FindAllStringSubmatch(dom, -1) {
		key := "?state="
		if w := ask(page, http.MethodGet, "/"+key+option[1]); w.Code != http.StatusOK {
			key = "?sort="
		}
		links = append(links, []string{"", key + option[1]})
	}
	for _, link := range links {
		if w := ask(page, http.MethodGet, "/debug/locks"+link[1]); w.Code != http.StatusOK {
			t.Errorf("%s: %d", link[1], w.Code)
		}
	}
	if len(links) < 30 {
		t.Errorf("%d links and options", len(links))
	}
}

// unmarshal is testdata/document.json, which has no field that the real one hasn't.
func unmarshal(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/document.json")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(new(document)); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPageOfLocks looks, on a phone in the dark, at locks in every kind of trouble, and at names that would like to be something else.
func TestPageOfLocks(t *testing.T) {
	t.Parallel()
	page, d := still(t)
	s := newSite(t, page)
	shot := filepath.Join(t.ArtifactDir(), "phone-dark.png")
	dom := browse(t, s, "?per=1000", "--window-size=500,1200", "--screenshot="+shot, "--blink-settings=preferredColorScheme=0")
	looksDrawn(t, shot, true)
	for tag, want := range map[string]int{"<script": 1, "<style": 1, "<h1": 1, "<img": 0, "</title": 1} {
		if n := strings.Count(strings.ReplaceAll(dom, `document.title="owned"`, ""), tag); n != want {
			t.Errorf("%d of %s: a name became markup", n, tag)
		}
	}
	text := reads(dom)
	if strings.ContainsAny(text, "\u202e\u200f\x00") ||
		!strings.Contains(text, `"user\u202egnp.exe\u200f"`) || !strings.Contains(text, `"two\nlines\tand\u0000nul"`) {
		t.Error("a name changes the text around it")
	}
	all := append(d.Held.Items, append(d.Waiting.Items, d.Ended.Items...)...)
	for _, r := range all {
		if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
			return strings.Contains(line, r.Owner) && strings.Contains(line, r.Kind) && strings.Contains(line, r.TraceID) &&
				(strings.Contains(line, r.Name) || strings.ContainsAny(r.Name, "\u202e\n")) // which are quoted
		}) {
			t.Errorf("not on the page: %+v", r)
		}
	}
	if n := strings.Count(dom, `<th scope="row"`); n != len(all)+len(d.Busiest) || n < 20 {
		t.Errorf("%d rows of %d and %d", n, len(all), len(d.Busiest))
	}
	if want := fmt.Sprintf("Locks: %d held, %d waiting", d.Summary.Held, d.Summary.Waiting); !strings.Contains(text, want) {
		t.Errorf("it doesn't say %q", want)
	}
}

// TestPageWithout looks at what is missing: locks, matches, an answer, or a query that can be understood.
func TestPageWithout(t *testing.T) {
	t.Parallel()
	plain := lockdebug.Handler(lockdebug.Options{TraceURL: "<b>"})
	var answers atomic.Int32
	for _, test := range []struct {
		page  http.Handler
		query string
		says  []string
	}{
		{plain, "", []string{
			"No lock is held.", "Nobody waits.", "Nothing was lost or canceled in the last hour.", "No acquire was recorded",
			"Locks: 0 held, 0 waiting", `the TraceURL "<b>" is not used`, `id="everything" hidden`,
		}},
		{plain, "?q=a&state=degraded", []string{"Held 0\nNothing here matches the filter.\nLost and canceled 0\nNothing here matches the filter.\n"}},
		{plain, "?page=%3Ci%3E&refresh=1", []string{"Locks: not understood\n", `page is "<i>"; allowed: 1 to 1000000`, `id="everything">Show everything`}},
		{serves(http.StatusBadGateway, "text/html", "<b>no"), "?refresh=1", []string{
			"Locks: no answer\n", "The locks can't be loaded: the answer is no JSON, and has the status 502",
		}},
		{serves(http.StatusInternalServerError, "application/json", `{"error": "lockdebug: <b>"}`), "", []string{
			"The locks can't be loaded: lockdebug: <b>",
		}},
		{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // it answers once, and is asked again
			if !strings.HasPrefix(r.URL.RawQuery, "format=json&") {
				answers.Store(0)
			} else if answers.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
			plain.ServeHTTP(w, r)
		}), "?refresh=1&state=held", []string{"Locks: no answer\n", "What is below is old. It was tried to load it again: ", "Nothing here matches the filter."}},
	} {
		t.Run(test.query, func(t *testing.T) {
			t.Parallel()
			dom := browse(t, newSite(t, test.page), test.query)
			for _, want := range test.says {
				if text := reads(dom); !strings.Contains(text+dom, want) {
					t.Errorf("it doesn't say %q:\n%s", want, text)
				}
			}
		})
	}
}

// TestPageLoadsAgain waits for the page to ask for its JSON, with its query.
func TestPageLoadsAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, newRig(t).page)
	const query = "?refresh=1&q=orders"
	ctx, stop := context.WithTimeout(t.Context(), tries*hangs)
	cmd := chromium(t, ctx, s.URL+mounted+query, "--remote-debugging-port=0") // without which it takes a look and ends
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var first time.Time
	for i := range 4 {
		select {
		case got := <-s.asked:
			if want := mounted + map[bool]string{true: query, false: "?format=json&refresh=1&q=orders"}[i == 0]; got.uri != want {
				t.Errorf("request %d is for %s, want %s", i, got.uri, want)
			}
			switch took := got.at.Sub(first); {
			case i == 1:
				first = got.at
			case i == 3 && took < time.Second:
				t.Errorf("two requests came within %v of the first; want two seconds", took)
			}
		case <-ctx.Done():
			t.Errorf("only %d requests", i)
		}
	}
	stop()
	_ = cmd.Wait() // it was interrupted
}

// looksDrawn checks that a picture is dark or light, and has something on it. `go test -artifacts` keeps it.
func looksDrawn(t *testing.T, path string, dark bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	img, _, err := image.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	b := img.Bounds()
	colors := map[color.Color]int{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			colors[img.At(x, y)]++
		}
	}
	corner, _, _, _ := img.At(b.Min.X+2, b.Min.Y+2).RGBA()
	if len(colors) < 100 || (corner < 0x8000) != dark {
		t.Errorf("%s: %v, %d colours, the corner is %x", path, b, len(colors), corner)
	}
}
