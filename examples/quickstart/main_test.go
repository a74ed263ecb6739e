package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv("QUICKSTART") != "" { // set by command
		main()
		os.Exit(0)
	}
	redistest.Main(m)
}

// ordered has to be shown in this order.
const ordered = `
1\. orders takes
INF span acquire order took=0s name=order:42 outcome=acquired owner=orders:\S+ token=\d{15} trace_id=[0-9a-f]{8}
2\. While orders works
INF span renew order took=0s name=order:42 ordinal=1 attempt=1 remaining=1.97 outcome=renewed trace_id=
INF span renew order .* ordinal=2 .* outcome=renewed
INF span renew order .* ordinal=3 .* outcome=renewed
3\. billing wants
4\. Redis refuses
WRN span renew order .* ordinal=5 attempt=1 .* outcome=error
WRN lock renewal failed name=order:42 owner=orders:.* attempt=1 .* error="LOADING Redis
WRN span renew order .* ordinal=5 attempt=2 .* outcome=error
INF span renew order .* ordinal=5 .* outcome=renewed
INF lock renewal recovered
5\. orders is done
INF span release order .* outcome=released owner=orders:
INF span renew order .* ordinal=1 .* outcome=renewed
6\. An operator
WRN span lost order .* cause=forced name=order:42 owner=billing:
ERR lock lost name=order:42 owner=billing:\S+ token=\d{15} cause=forced .* trace_id=[0-9a-f]{8}
What Prometheus would read
lockdog_acquisitions_total{lockdog_group="order",lockdog_outcome="acquired"} 2
lockdog_losses_total{lockdog_cause="forced",lockdog_group="order"} 1
lockdog_renewals_total{lockdog_group="order",lockdog_outcome="error"} [2-9]
INF span acquire report .* name=report:daily outcome=acquired`

// anywhere is shown by several goroutines, so that the order varies.
const anywhere = `
INF span hold order took=6s .* owner=orders:.* end=released
INF span place order 42 took=6s
INF span acquire order took=2.5s .* outcome=acquired owner=billing:.* blocked_by=orders:
INF span hold order took=1.5s .* owner=billing:.* end=lost
WRN billing stops its work cause="lockdog: lease of lock \\"order:42\\" lost: forced: ForceUnlock by \\"operator\\"" trace_id=
WRN lock unlocked by force name=order:42 owner=billing:\S+ by=operator caller=`

// TestStory reads what is printed, and looks at the pages.
func TestStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = out.Close() }()
		fake := redistest.StartFake(t)
		refuse := func(reply string) { fake.SetRefusal(func(string, ...string) string { return reply }) }
		pages := http.NewServeMux()
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- play(ctx, out, fake.Client(t), refuse, pages) }()
		time.Sleep(time.Minute)
		for path, want := range map[string]string{"/metrics": `lockdog_held{lockdog_group="report"} 1`, "/debug/locks": `"report:daily"`} {
			rec := httptest.NewRecorder()
			pages.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
			if !strings.Contains(rec.Body.String(), want) {
				t.Errorf("GET %s: want %s in\n%s", path, want, rec.Body)
			}
		}
		interrupt()
		if err := <-ended; err != nil {
			t.Error(err)
		}

		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(anywhere[1:]) {
			if !regexp.MustCompile(strings.TrimSuffix(line, "\n")).Match(text) {
				t.Errorf("not shown: %s", line)
			}
		}
		rest := text
		for line := range strings.Lines(ordered[1:]) {
			at := regexp.MustCompile(strings.TrimSuffix(line, "\n")).FindIndex(rest)
			if at == nil {
				t.Errorf("not shown, or not in its place: %s", line)
				break
			}
			rest = rest[at[1]:]
		}
		if t.Failed() || strings.Contains(string(text), "\x1b[") {
			t.Errorf("without colour this was to be shown:\n%s", text)
		}
	})
}

// command is the program in a process of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "QUICKSTART=1", "NO_COLOR=")
	return cmd
}

// TestProgram starts it, looks at the pages, and interrupts it as Ctrl-C does.
func TestProgram(t *testing.T) {
	t.Parallel()
	cmd := command(t, "-metrics", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text string
	r := bufio.NewReader(out)
	for !strings.Contains(text, "2. While orders works") {
		line, err := r.ReadString('\n')
		if text += line; err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	if strings.Contains(text, "\x1b[") {
		t.Errorf("colour where no terminal is:\n%s", text)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{"/metrics": `lockdog_acquisitions_total{lockdog_group="order"`, "/debug/locks": `"clients": 3`} {
		resp, err := client.Get(regexp.MustCompile(`http://[0-9.:]+` + path).FindString(text))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("GET %s: %v, want %s in\n%s", path, err, want, body)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	want := 130
	if strings.Contains(string(rest), "acquire report") {
		want = 0 // the machine is so slow that the story was over
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != want {
		t.Errorf("%v, want exit code %d\n%s", err, want, rest)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]struct {
		code int
		says string
	}{"-h": {0, "-metrics ADDR"}, "-x": {2, "-metrics ADDR"}, "-metrics=9464": {1, "quickstart: listen tcp"}} {
		cmd := command(t, arg)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != want.code || !strings.Contains(string(out), want.says) {
			t.Errorf("%s: %v, want exit code %d and %q:\n%s", arg, err, want.code, want.says, out)
		}
	}
}
