// Command loadtest measures what renewing locks costs Redis: how many calls, how much CPU time and network N watched locks add, and what
// that does to everybody else. It compares no renewal, a watchdog per lock, and lockdog's batches, in one run.
//
//	go run ./loadtest                      # two and a half minutes; needs redis-server
//	go run ./loadtest -html report.html    # with charts
//	go run ./loadtest -soak 5m             # a million locks in one process
//	go run ./loadtest -wave                # mass acquire, cut connections, a stopped process
//
// -h lists the flags and says what each figure means.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it
)

func main() {
	if fleet.IsChild() {
		os.Exit(child.Main(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program, up to its exit code. The table goes to stdout, what happens meanwhile to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis's; what is wrong comes back as an error

	f, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "loadtest: %v\nloadtest -h lists the flags\n", err)
		return exitUsage
	}
	err = load(ctx, f, args, stdout, stderr)
	switch {
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "loadtest: interrupted")
		return exitInterrupted
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "loadtest:", err)
		return exitFailed
	}
	return 0
}
