// Command loadtest measures what it costs Redis to renew locks: how many calls and how much CPU time N renewed locks
// add, and how that affects other clients. It compares no renewal, a watchdog per lock, and lockdog's batches in one
// run.
//
//	go run -C loadtest .                      # two and a half minutes; needs redis-server
//	go run -C loadtest . -html report.html    # with a picture
//	go run -C loadtest . -soak 5m             # a million locks in one process
//
// -h lists the flags and explains each figure.
package main

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/load"
)

//go:embed usage.txt
var usage string

func main() { cli.Main(load.Main, run) }

// run runs the program, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, "loadtest", usage, parse, func(f flags) error {
		rep, err := measure(ctx, f, stderr)
		if rep == nil || len(rep.rows) == 0 {
			return err
		}
		rep.command = "go run -C loadtest . " + strings.Join(args, " ")
		return errors.Join(err, rep.print(stdout), rep.save(f.html), errors.Join(rep.faults...))
	}, args, stdout, stderr)
}

// measure measures what the flags ask for. If the bench can't be opened, it returns no report. Otherwise the report has
// what was measured, also after an interrupt or an error.
func measure(ctx context.Context, f flags, progress io.Writer) (*report, error) {
	b, err := openBench(ctx, f, progress)
	if err != nil {
		return nil, err
	}
	rep := &report{b: b, load: cli.LoadAverage()}
	err = errors.Join(b.compare(ctx, rep), b.close())
	rep.took, rep.complete = time.Since(b.began), err == nil
	return rep, err
}
