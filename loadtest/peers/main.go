// Command peers compares lockdog with other lock libraries for Redis, and with the least that a lock can cost, side by side
// in one run. It checks what lockdog promises of that.
//
//	make peers        # from the module's root
//
// Each library runs in its own processes with its own redis-server, which start anew in each round; the rounds are
// interleaved. Ratios are those of medians over the rounds. It is a separate module: the other libraries never
// enter the module graph of lockdog's users.
package main

import (
	"context"
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

const usage = `peers compares lockdog with other lock libraries, round after round, each library in processes of its own with a
redis-server of its own. It prints a table, and says of each target whether it is met, and by how much.

  -rounds 5       how often everything is measured; figures are medians
  -seconds 2      of each measurement
  -works LIST     of %s
  -peers LIST     of %s
  -ctx            give go-redis's clients ContextTimeoutEnabled, as a program that wants its ctx heeded does
  -json FILE      the figures of every round, for machines

What the figures mean:
  p50, p99, longest   of a lock and its release together, or a TryLock, in µs; where all want one lock, of the wait alone
  /s                  operations; where all want one lock, handoffs: grants to another goroutine than the last one's, or, with
                      several processes, to another process
  handoff p50         µs from the start of a release to the next grant, where its new holder was waiting already; with several
                      processes
  cmds, in Lua        commands per operation or handoff, from INFO commandstats: those that came over the network, and apart from
                      them those that scripts called, which cost no round trip
  fair, fair procs    most turns of a goroutine, or a process, divided by the least
  stuck               waiters who didn't get the lock within two seconds after all others had stopped; the worst round
  allocs, bytes       heap objects and bytes per operation, of the whole process
  client, redis       CPU time per operation in µs, in user and system mode, of all client processes and of Redis
  told                ms from DEL, FLUSHALL or a forced unlock by another client until the holder knows; the worst

All clients have the defaults of their libraries, but for -ctx, leases of 30 s and, where nothing wakes a waiter, 5 ms between tries.
Everybody gives Lock a ctx that can be canceled, and says the lock's name at each call. It exits 0 when everything could be
measured and no two ever held one lock, whether targets are met or not; 1 else; 2 for bad flags; 130 when interrupted.
`

func main() { cli.Main(work.Main, run) }

// flags are what the command line can say.
type flags struct {
	rounds int
	window time.Duration
	works  []workload
	ctx    bool
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
	works, peers := set.String("works", "", ""), set.String("peers", "", "")
	set.IntVar(&f.rounds, "rounds", 5, "")
	set.BoolVar(&f.ctx, "ctx", false, "")
	set.StringVar(&f.json, "json", "", "")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	chosenWorks, err := list("works", *works, workNames())
	if err != nil {
		return f, err
	}
	chosenPeers, err := list("peers", *peers, peerNames())
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

// list is cli.List; no names mean all.
func list(flag, text string, known []string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	return cli.List(flag, text, known)
}

// run is the whole program, up to its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	help := fmt.Sprintf(usage, strings.Join(workNames(), ", "), strings.Join(peerNames(), ", "))
	return cli.Run(ctx, "peers", help, parse, func(f flags) error {
		b := newBench(f, stderr)
		err := b.all(ctx)
		if b.measured() { // also what there is when it was interrupted
			err = errors.Join(err, b.print(stdout), b.sound(), b.save())
		}
		return err
	}, args, stdout, stderr)
}

// save writes the figures of every round, if asked to.
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
