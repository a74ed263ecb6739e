package dashboards_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The checks below need no Docker: the tools' own checkers read the configurations, and what Docker would be asked for is
// looked at as text.

func TestPrometheusConfig(t *testing.T) {
	t.Parallel()
	out, err := promtool(t, "check", "config", "--lint=all", "--lint-fatal", "compose/prometheus.yml")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// Not those of a template, nor none.
	for _, file := range []string{"prometheus/lockdog-rules.yaml", "prometheus/lockdog-alerts.yaml"} {
		if !strings.Contains(out, file) {
			t.Errorf("%s is not loaded:\n%s", file, out)
		}
	}
}

func TestAlertmanagerConfig(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("amtool")
	if err != nil {
		t.Fatal("amtool is missing; install it: apt-get install prometheus-alertmanager (or make setup)")
	}
	if out, err := exec.CommandContext(t.Context(), path, "check-config", "compose/alertmanager.yml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, a := range regexp.MustCompile(`Lockdog\w+`).FindAllString(readFile(t, "compose/alertmanager.yml"), -1) {
		if !isAlert(t, a) {
			t.Errorf("there is no alert %s", a)
		}
	}
}

func isAlert(t *testing.T, name string) bool {
	t.Helper()
	for _, a := range alerts(t) {
		if a.alert == name {
			return true
		}
	}
	return false
}

// pinned is a version that doesn't move from one minor release to the next.
var pinned = regexp.MustCompile(`^[\w./-]+:v?\d+\.\d+[\w.-]*$`)

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	images := regexp.MustCompile(`(?m)^\s*(?:image:|FROM) (\S+)`)
	for file, least := range map[string]int{"compose.yaml": 6, "compose/orders.Dockerfile": 1} {
		found := 0
		for _, m := range images.FindAllStringSubmatch(readFile(t, file), -1) {
			if m[1] == "scratch" {
				continue
			}
			found++
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned", file, m[1])
			}
		}
		if found < least {
			t.Errorf("%s: found %d images, of %d", file, found, least)
		}
	}
}

// TestMountsExist: Docker makes an empty directory of a path that isn't there, and says nothing.
func TestMountsExist(t *testing.T) {
	t.Parallel()
	text := readFile(t, "compose.yaml")
	mounts := regexp.MustCompile(`(?m)^ +- (\./\S+?):(/\S+):ro$`).FindAllStringSubmatch(text, -1)
	if want := strings.Count(text, ":ro"); len(mounts) != want || want == 0 {
		t.Fatalf("found %d mounts, of %d", len(mounts), want)
	}
	targets := ""
	for _, m := range mounts {
		if _, err := os.Stat(m[1]); err != nil {
			t.Error(err)
		}
		targets += m[2] + "\n"
	}
	for _, where := range []string{"context", "dockerfile"} {
		m := regexp.MustCompile(where + `: (\S+)`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("compose.yaml has no %s", where)
		}
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Error(err)
		}
	}
	// Where Grafana is told to look for dashboards, and where they are.
	if path := "/etc/lockdog/grafana"; !strings.Contains(targets, path+"\n") || !strings.Contains(readFile(t, "compose/grafana/dashboards.yaml"), "path: "+path+"\n") {
		t.Errorf("Grafana does not read the dashboards from where they are mounted, %s:\n%s", path, targets)
	}
}

// TestPortsAreLocal: there are no passwords.
func TestPortsAreLocal(t *testing.T) {
	t.Parallel()
	ports := regexp.MustCompile(`ports: \["([^"]*)"\]`).FindAllStringSubmatch(readFile(t, "compose.yaml"), -1)
	if want := strings.Count(readFile(t, "compose.yaml"), "ports:"); len(ports) != want || want == 0 {
		t.Fatalf("found %d ports, of %d", len(ports), want)
	}
	for _, p := range ports {
		if !strings.HasPrefix(p[1], "127.0.0.1:") {
			t.Errorf("%s is open to the network", p[1])
		}
	}
}
