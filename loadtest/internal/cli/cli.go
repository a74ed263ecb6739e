// Package cli has what makes the load test a command: signals, flags, exit codes.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

// The exit codes.
const (
	Failed      = 1
	Usage       = 2
	Interrupted = 130 // the code of shells
)

// Main calls run, or child if this process is a child of the program (fleet.IsChild), and exits.
func Main(
	child func(in io.Reader, out io.Writer) int,
	run func(ctx context.Context, args []string, stdout, stderr io.Writer) int,
) {
	if fleet.IsChild() {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends the program at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run parses the flags, calls do, and returns the exit code. Results go to stdout, progress and errors to stderr.
func Run[F any](
	ctx context.Context, name, usage string, parse func(args []string) (F, error), do func(F) error,
	args []string, stdout, stderr io.Writer,
) int {
	logging.Disable() // the log of go-redis: failures are returned as errors
	f, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n%s -h lists the flags\n", name, err, name)
		return Usage
	}
	err = do(f)
	switch {
	case ctx.Err() != nil:
		_, _ = fmt.Fprintf(stderr, "%s: interrupted\n", name)
		return Interrupted
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return Failed
	}
	return 0
}

// List parses the value of a flag: names separated by commas.
func List(flag, text string, known []string) ([]string, error) {
	var names []string
	for s := range strings.SplitSeq(text, ",") {
		name := strings.TrimSpace(s)
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-%s %s: %q is not one of %s", flag, text, name, strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

// LoadAverage returns the load average of the machine, "" if the system doesn't have it.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
