package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// asked is what the program answers without a server.
func asked(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// A terminal of 80 columns shows each help text, tables included, without cutting words in two.
func TestHelpIsNarrow(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "ls", "who", "watch", "unlock", "run", "doctor"} {
		code, stdout, _ := asked(append(strings.Fields(command), "-h")...)
		if code != exitOK || !strings.Contains(stdout, "--help") {
			t.Errorf("%s: exit code %d\n%s", command, code, stdout)
		}
		for line := range strings.Lines(stdout) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth {
				t.Errorf("%s: %d columns: %s", command, n, line)
			}
		}
	}
}

// Shells complete what can be known without a server: words of flags, and files where a file is wanted, such as the command of run.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const files, nothing = ":0\n", ":4\n"
	for args, want := range map[string]string{
		"run job -- ./w":              files,
		"run job -- ./work ./in":      files,
		"run ":                        nothing,
		"run job --heartbeat-file ./": files,
		"run job --wait f":            "forever\n" + nothing,
		"ls --password-file ./":       files,
		"ls --cacert ./":              files,
		"ls --sort ":                  "name\nage\nwaiting\n" + nothing,
		"doctor --kind ":              "mutex\nwait_graph\nfair_mutex\n",
		"who ":                        nothing,
		"unl":                         "unlock\t",
	} {
		words := strings.Split(args, " ")
		if _, stdout, _ := asked(append([]string{"__complete"}, words...)...); !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: got %q, want %q", args, stdout, want)
		}
	}
}

// What can't be meant is said in one line, without asking Redis, and without secrets.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, stderr string }{
		{"lss", "do you mean ls?"},
		{"nothing-like-it", "-h' lists them"},
		{"ls a b", "usage: lockdog ls [PATTERN]"},
		{"ls redis://127.0.0.1:7000", "the address of Redis is given with -u"},
		{"who unix:///run/redis.sock", "the address of Redis is given with -u"},
		{"who", "usage: lockdog who NAME"},
		{"ls -p 6379", "-u host:port"}, // as redis-cli has it
		{"ls -a secret", "-u host:port"},
		{"ls -h127.0.0.1", "-u host:port"},
		{"ls --sort size", "--sort size"},
		{"ls --no-such-flag", "no-such-flag"},
		{"ls --timeout 0s", "--timeout"},
		{"ls -u redis://u:secret@127.0.0.1", "-u has a password"},
		{"ls --cacert f", "--tls"},
		{"graph a b", "usage: lockdog graph [PATTERN]"},
		{"watch a b", "usage: lockdog watch [PATTERN]"},
		{"watch --interval 100ms", "--interval 100ms: must be 200ms or more"},
		{"watch --count -1", "--count -1: must be 0 or more"},
		{"doctor --kind futex", "must be one of"},
		{"run free", "usage: lockdog run NAME"},
		{"run free true", "usage: lockdog run NAME"},
		{"run -- true", "usage: lockdog run NAME"},
		{"run free --wait soon -- true", "--wait"},
		{"run free --wait -1s -- true", "--wait"},
		{"run free --grace 11s -- true", "--grace"},
		{"run free --max-hold 9s -- true", "--max-hold"},
		{"run free --max-hold 20s --min-hold 21s -- true", "--min-hold"},
		{"run free --heartbeat 20s -- true", "--heartbeat-file"},
		{"run free --heartbeat 9s --heartbeat-file f -- true", "--heartbeat"},
		{"run free --semaphore -1 -- true", "--semaphore"},
		{"run free --semaphore 2 --min-hold 1s -- true", "--min-hold"},
		{"run free --held-code 256 -- true", "--held-code"},
		{"run free --takeover-delay -1s -- true", "--takeover-delay"},
		{"run free --takeover-delay 25h -- true", "--takeover-delay"},
	} {
		code, _, stderr := asked(strings.Fields(test.args)...)
		if code != exitUsage || !strings.Contains(stderr, test.stderr) || strings.Contains(stderr, "secret") ||
			strings.Count(stderr, "\n") != 1 || strings.HasPrefix(stderr, "lockdog: lockdog") {
			t.Errorf("%s: exit code %d, %q, want %q", test.args, code, stderr, test.stderr)
		}
	}
	for _, args := range []string{"", "-h", "help run", "--version", "completion bash"} {
		if code, stdout, _ := asked(strings.Fields(args)...); code != 0 || !strings.Contains(stdout, "lockdog") {
			t.Errorf("%s: exit code %d, %q", args, code, stdout)
		}
	}
}
