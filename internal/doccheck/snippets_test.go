package doccheck_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/dashboards"
)

// frame is what the README's pieces of code stand in: a function with what they use from around them.
const frame = `package p

import (
%s)

func _(ctx context.Context, rdb *redis.Client, tracers trace.TracerProvider, meters metric.MeterProvider, logger *slog.Logger) error {
%s
	_ = locks
	return err
}
`

// packages are those that the pieces and the frame may use.
var packages = map[string]string{
	"context":   "context",
	"http":      "net/http",
	"slog":      "log/slog",
	"redis":     "github.com/redis/go-redis/v9",
	"metric":    "go.opentelemetry.io/otel/metric",
	"trace":     "go.opentelemetry.io/otel/trace",
	"lock":      "github.com/lockdog/lockdog/lock",
	"lockdebug": "github.com/lockdog/lockdog/lock/lockdebug",
	"otelsetup": "github.com/lockdog/lockdog/telemetry/otelsetup",
}

// TestPiecesCompile compiles the Go code in README.md that is no whole program.
func TestPiecesCompile(t *testing.T) {
	t.Parallel()
	pieces := 0
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readFile(t, "README.md"), -1) {
		if strings.HasPrefix(m[1], "package ") {
			continue
		}
		pieces++
		var imports strings.Builder
		for name, path := range packages {
			if strings.Contains(frame+m[1], name+".") {
				fmt.Fprintf(&imports, "\t%q\n", path)
			}
		}
		mustVet(t, fmt.Sprintf(frame, &imports, m[1]))
	}
	if pieces == 0 {
		t.Error("no pieces of code found")
	}
}

func TestNumberOfAlerts(t *testing.T) {
	t.Parallel()
	rules, err := dashboards.FS.ReadFile("prometheus/lockdog-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mustSay(t, fmt.Sprintf(" %d alerts,", strings.Count(string(rules), "- alert: ")))
}

// mustSay fails the test unless README.md says so, wherever its lines break.
func mustSay(t *testing.T, text string) {
	t.Helper()
	if readme := strings.Join(strings.Fields(readFile(t, "README.md")), " "); !strings.Contains(readme, strings.TrimSpace(text)) {
		t.Errorf("README.md doesn't say %q", text)
	}
}
