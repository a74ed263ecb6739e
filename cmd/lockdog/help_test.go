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

func TestWrap(t *testing.T) {
	t.Parallel()
	const text = "one two three\nfour five\n\n  a table  stays as it is\n  and so\n  - one two\n    three\n  - four\nlast averyveryverylongword x\n"
	const want = "one two\nthree four\nfive\n\n  a table  stays as it is\n  and so\n  - one\n    two\n    three\n  - four\nlast\naveryveryverylongword\nx"
	if got := wrap(text, 10); got != want {
		t.Errorf("got %q, want %q", got, want)
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

// Who types the flags of redis-cli is told ours.
func TestFlagsOfRedisCLI(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"ls -p 6379", "ls -a secret", "ls -h127.0.0.1"} {
		if code, _, stderr := asked(strings.Fields(args)...); code != exitUsage || !strings.Contains(stderr, "-u host:port") {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}
