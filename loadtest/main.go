// Command loadtest measures what renewing locks costs Redis: how many calls, how much CPU time and network N watched locks add, and what
// that does to everybody else. It compares no renewal, a watchdog per lock, and lockdog's batches, in one run.
//
//	go run -C loadtest .                      # two and a half minutes; needs redis-server
//	go run -C loadtest . -html report.html    # with charts
//	go run -C loadtest . -soak 5m             # a million locks in one process
//	go run -C loadtest . -wave                # mass acquire, cut connections, a stopped process
//
// -h lists the flags and explains each figure.
package main

import (
	"context"
	_ "embed"
	"io"

	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/cli"
)

//go:embed usage.txt
var usage string

func main() { cli.Main(child.Main, run) }

// run is the whole program, up to its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, "loadtest", usage, parse, func(f flags) error { return load(ctx, f, args, stdout, stderr) }, args, stdout, stderr)
}
