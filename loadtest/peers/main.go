// Command peers compares lockdog with other lock libraries for Redis, and with the minimum cost of a lock, in one run.
// It also checks what lockdog promises about that.
//
//	make peers        # from the repository's root
//
// Each library runs in its own processes with its own redis-server, which are started again in each round. The rounds
// are interleaved. Ratios are ratios of medians over the rounds.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/peers/internal/work"
)

//go:embed usage.txt
var usage string // with placeholders for the names of works and peers

func main() { cli.Main(work.Main, run) }

// flags has the values of the command-line flags.
type flags struct {
	rounds int
	window time.Duration
	works  []workload
	json   string
}

// Limits of the flags.
const (
	maxRounds  = 1000
	maxSeconds = 3600
)

func parse(args []string) (f flags, err error) {
	set := flag.NewFlagSet("peers", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	seconds := set.Float64("seconds", 2, "")
	works := set.String("works", strings.Join(workNames(), ","), "")
	peers := set.String("peers", strings.Join(peerNames(), ","), "")
	set.IntVar(&f.rounds, "rounds", 5, "")
	set.StringVar(&f.json, "json", "", "")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	chosenWorks, err := cli.List("works", *works, workNames())
	if err != nil {
		return f, err
	}
	chosenPeers, err := cli.List("peers", *peers, peerNames())
	if err != nil {
		return f, err
	}
	f.works = choose(chosenWorks, chosenPeers)
	f.window = time.Duration(*seconds * float64(time.Second))
	switch {
	case set.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	case f.rounds < 1 || f.rounds > maxRounds:
		return f, fmt.Errorf("-rounds %d: want 1 to %d", f.rounds, maxRounds)
	case !(*seconds >= 0.01 && *seconds <= maxSeconds):
		return f, fmt.Errorf("-seconds %v: want 0.01 to %d", *seconds, maxSeconds)
	case len(f.works) == 0:
		return f, fmt.Errorf("none of -peers %s is measured in -works %s", *peers, *works)
	}
	return f, nil
}

// run runs the program, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	help := fmt.Sprintf(usage, strings.Join(workNames(), ", "), strings.Join(peerNames(), ", "))
	return cli.Run(ctx, "peers", help, parse, func(f flags) error {
		b := newBench(f, stderr)
		err := b.all(ctx)
		if len(b.rounds) > 0 { // also after an interrupt or an error: print what was measured until then
			err = errors.Join(err, b.print(stdout), b.sound(), b.save())
		}
		return err
	}, args, stdout, stderr)
}

// save writes the figures of every round to the file of -json, if any.
func (b *bench) save() error {
	if b.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(b.rounds, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.json, append(text, '\n'), 0o644)
}
