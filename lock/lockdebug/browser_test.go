package lockdebug_test

import (
	"bytes"
	"context"
	"html"
	"image"
	"image/color"
	_ "image/png" // of screenshots
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// What a browser makes of the page. No script can run in it: the Content-Security-Policy, which Chromium enforces,
// allows none, so that all that is seen here works without JavaScript.

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

// hangs is how long Chromium takes if it hangs: on a machine that is busy, it takes many seconds.
const hangs = 10 * time.Minute

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

// browse runs Chromium once and returns what it printed. The page must ask for nothing but itself, and be content with its
// Content-Security-Policy.
func browse(t *testing.T, s *site, query string, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	cmd := chromium(t, ctx, s.URL+mounted+query, flags...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &log)
	}
	if at := strings.Index(log.String(), "CONSOLE"); at >= 0 {
		t.Errorf("%s: the browser complains: %s", query, log.String()[at:])
	}
	for len(s.asked) > 0 {
		if got := (<-s.asked).uri; got != mounted+query {
			t.Errorf("the page asked for %s", got)
		}
	}
	return out.String()
}

func TestBrowserReadsNames(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hold(evil, lock.WithFixedLease(time.Hour))
	dom := browse(t, newSite(t, r.page), "", "--dump-dom")
	if !strings.Contains(dom, "<title>Locks: 10 held, 0 waiting</title>") || strings.Contains(dom, "<script") || strings.Contains(dom, "<img") {
		t.Errorf("a name became markup:\n%s", dom)
	}
	if n := strings.Count(dom, `<th scope="row">`); n != len(evil) {
		t.Errorf("%d rows of %d", n, len(evil))
	}
	if !strings.Contains(dom, "<bdi>&lt;script&gt;document.title=\"owned\"&lt;/script&gt;</bdi>") {
		t.Error("the name isn't shown as it is")
	}
}

func TestBrowserFollowsPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := newSite(t, r.page)
	if dom := draw(t, s, "zero", "--window-size=1400,600"); strings.Contains(dom, "<table") || !strings.Contains(dom, "No lock is held.") {
		t.Errorf("without locks:\n%s", dom)
	}
	r.hold(names("bulk", 250), lock.WithFixedLease(time.Hour))
	next := regexp.MustCompile(`<a href="([^"#]*)#held" rel="next"`)
	first := regexp.MustCompile(`<th scope="row"><bdi>([^<]*)`)
	query := "?sort=name"
	for _, want := range []string{"bulk:0000", "bulk:0100"} {
		dom := browse(t, s, query, "--dump-dom")
		m := first.FindStringSubmatch(dom)
		if n := strings.Count(dom, `<th scope="row">`); n != 100 || m[1] != want {
			t.Fatalf("%s: %d rows from %v; want %s", query, n, m, want)
		}
		link := next.FindStringSubmatch(dom)
		if link == nil {
			t.Fatalf("%s: no link to the next page", query)
		}
		// As the browser resolves it: the page knows nothing of where it is mounted.
		here, err := url.Parse(s.URL + mounted + query)
		if err != nil {
			t.Fatal(err)
		}
		there, err := here.Parse(html.UnescapeString(link[1]))
		if err != nil || there.Path != mounted {
			t.Fatalf("%s leads to %v, %v", link[1], there, err)
		}
		query = "?" + there.RawQuery
	}
}

// TestBrowserLoadsAgain waits for the page to ask for itself, with its query.
func TestBrowserLoadsAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, newRig(t).page)
	const query = "?refresh=1&q=orders"
	ctx, stop := context.WithTimeout(t.Context(), hangs)
	cmd := chromium(t, ctx, s.URL+mounted+query, "--remote-debugging-port=0") // without which it takes a look and ends
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var first time.Time
	for i := range 3 {
		select {
		case got := <-s.asked:
			if got.uri != mounted+query {
				t.Errorf("request %d is for %s", i, got.uri)
			}
			switch took := got.at.Sub(first); {
			case i == 0:
				first = got.at
			case i == 2 && took < time.Second:
				t.Errorf("two requests came within %v of the first; want two seconds", took)
			}
		case <-ctx.Done():
			t.Errorf("only %d requests", i)
		}
	}
	stop()
	_ = cmd.Wait() // it was interrupted
}

// TestBrowserDraws makes screenshots, in light and dark, wide and as narrow as a phone. `go test -artifacts` keeps them.
func TestBrowserDraws(t *testing.T) {
	t.Parallel()
	s := newSite(t, still(t, inAllStates))
	draw(t, s, "light", "--window-size=1400,1000")
	draw(t, s, "phone-dark", "--window-size=500,1200", "--blink-settings=preferredColorScheme=0")
}

// inAllStates has a lock of every kind in every state.
func inAllStates(t *testing.T) *rig {
	t.Helper()
	traced := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tracetest.NewSpanRecorder()))
	q, servers, _ := newQuorum(t)
	r := newRig(t, lock.WithWatchdog(20*time.Second), lock.WithTracerProvider(traced), lock.WithContentionProfile(1))
	servers[2].Hold("invoice:42", "java")
	for name, m := range map[string]lock.Locker{
		"invoice:42": q.Mutex("invoice:42"), "multi": r.srv.Client().Multi([]string{"account:alice", "account:bob", "stock:7"}),
	} {
		l, err := m.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.held[name] = l
	}
	r.page = lockdebug.Handler(lockdebug.Options{
		Clients:  []*lock.Client{r.srv.Client(), servers[0].Client(), servers[1].Client(), servers[2].Client()},
		TraceURL: "https://jaeger.example.com/trace/{trace_id}",
	})
	r.hold(append(names("orders", 6), evil...))
	r.hold([]string{"import:customers"})
	r.hold([]string{"report:daily"}, lock.WithWatchdog(10*time.Minute)) // its thief has it for as long, and others wait
	r.hold([]string{"billing:export"}, lock.WithFixedLease(time.Hour))
	r.hold([]string{"cache:warmup"}, lock.WithWatchdog(600*time.Millisecond), lock.WithMaxHold(200*time.Millisecond))
	for range 3 {
		r.wait("report:daily")
	}
	r.srv.Lose("report:daily", lock.CauseTaken)
	r.srv.Lose("orders:0003", lock.CauseMissing)
	<-r.held["orders:0003"].Ended()
	<-r.held["cache:warmup"].Ended()
	r.hold([]string{"stock:count"}, lock.WithWatchdog(10*time.Second))
	r.srv.FailRenewals(errSick)
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if r.json("").Summary.Failing == 0 {
		t.Error("no renewal failed")
	}
	return r
}

// still is a page as it was once in a bubble, for a browser, which can't be in one.
func still(t *testing.T, set func(*testing.T) *rig) (page http.Handler) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		shown := ask(set(t).page, http.MethodGet, "/debug/locks?refresh=off")
		page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), shown.Header())
			_, _ = w.Write(shown.Body.Bytes())
		})
	})
	return page
}

// draw makes a screenshot, and checks that there is something to see. It returns the DOM.
func draw(t *testing.T, s *site, name string, flags ...string) string {
	t.Helper()
	shot := filepath.Join(t.ArtifactDir(), name+".png")
	dom := browse(t, s, "?refresh=off", append(flags, "--dump-dom", "--screenshot="+shot)...)
	looksDrawn(t, shot, strings.Contains(name, "dark"))
	return dom
}

// looksDrawn checks that a picture is dark or light, and has something on it.
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
