package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// story is a trace as Jaeger gives it, whose second renewal failed or didn't.
func story(id string, failed bool) string {
	span := func(name, parent string, start, length int, tags string) string {
		return fmt.Sprintf(`{"spanID":%q,"operationName":%[1]q,"startTime":%d,"duration":%d,"references":[{"refType":"CHILD_OF","traceID":%q,"spanID":%q}],"tags":[%s]}`,
			name, start, length, id, parent, tags)
	}
	spans := []string{
		span("release report", "write <report>", 19_000_000, 1000, ""),
		span("write <report>", "", 0, 20_000_000, ""),
		strings.Replace(span("acquire report", "write <report>", 0, 2_000_000, `{"key":"lockdog.attempts","value":2}`), "[", `[{"refType":"FOLLOWS_FROM","traceID":"other","spanID":"held"},`, 1),
		span("held report", "acquire report", 2_000_000, 0, `{"key":"lockdog.token","value":1234567890123456}`),
	}
	for i := range 6 {
		tags := `{"key":"lockdog.lease.utilization","value":0.334}`
		if failed && i == 1 {
			tags += `,{"key":"error","value":true},{"key":"error.type","value":"timeout"}`
		}
		spans = append(spans, span(fmt.Sprint("renew ", i), "held report", 3_000_000+1_000_000*i, 1000, tags))
	}
	return fmt.Sprintf(`{"traceID":%q,"spans":[%s]}`, id, strings.Join(spans, ","))
}

func TestTrace(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"data":[%s,%s]}`, story("dull", false), story("good", true))
	}))
	defer srv.Close()
	out := filepath.Join(t.TempDir(), "trace.svg")
	if err := run(srv.URL, "", out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	order := 0
	for _, want := range []string{
		"trace good, 20s, 10 spans", "write &lt;report&gt;", "acquire report", "2s, 2 tries", "held report", "token 1234567890123456",
		"renew 0", "33 % of the lease used", "renew 1", red, "timeout: 33 %", "renew 5", "release report",
	} {
		at := strings.Index(string(text)[order:], want)
		if at < 0 {
			t.Fatalf("no %q in its place in\n%s", want, text)
		}
		order += at
	}
}

func TestPNG(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	img := image.NewRGBA(image.Rect(0, 0, 100, 100))
	each(img, func(x, y int, _ color.RGBA) { img.Set(x, y, color.RGBA{uint8(x), uint8(y), 0, 255}) }) // 10,000 colours
	in, out := filepath.Join(dir, "in.png"), filepath.Join(dir, "out.png")
	f, err := os.Create(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(png.Encode(f, img), f.Close(), run("", in, out)); err != nil {
		t.Fatal(err)
	}
	if f, err = os.Open(out); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	small, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := small.(*image.Paletted); !ok || p.Bounds() != img.Bounds() || len(p.Palette) != 256 {
		t.Errorf("got a %T of %v", small, small.Bounds())
	}
	if got := small.At(0, 1); got != (color.RGBA{0, 1, 0, 255}) { // one of the first 256
		t.Errorf("a colour that was kept is %v", got)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][3]string{{}, {"http://x", "y", "z"}, {"http://x", "", ""}, {"", "", "z"}} {
		if err := run(args[0], args[1], args[2]); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
