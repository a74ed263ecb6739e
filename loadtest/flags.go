package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/load"
	"github.com/lockdog/lockdog/lock"
)

// Limits of the flags.
const (
	maxLocks    = 10_000_000
	maxClients  = 1000
	maxRounds   = 100
	maxDuration = 24 * time.Hour
	maxRate     = 100_000
	maxRTT      = time.Second

	renewalsPerLease = 3
	soakIntervals    = 3 // minimum
)

var allModes = []string{load.None, load.PerLock, load.Batched, load.Agent, load.Redisson}

// flags has the values of the command-line flags.
type flags struct {
	cluster    bool
	rtt        time.Duration // from the clients to Redis; 0: none is added
	locks      []int
	lease      time.Duration
	duration   time.Duration // of one measurement, in whole intervals
	rounds     int
	modes      []string
	clients    int
	foreground float64
	html       string
	soak       time.Duration
	churn      float64
}

func (f *flags) interval() time.Duration { return f.lease / renewalsPerLease }

// parse parses the command line, and checks it before anything is started.
func parse(args []string) (f flags, err error) {
	set := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	set.SetOutput(io.Discard) // cli.Run reports errors
	set.BoolVar(&f.cluster, "cluster", false, "")
	set.DurationVar(&f.rtt, "rtt", 0, "")
	set.DurationVar(&f.lease, "lease", lock.DefaultLease, "")
	set.DurationVar(&f.duration, "duration", 0, "")
	set.IntVar(&f.rounds, "rounds", 2, "")
	set.IntVar(&f.clients, "clients", 2, "")
	set.Float64Var(&f.foreground, "foreground", 500, "")
	set.StringVar(&f.html, "html", "", "")
	set.DurationVar(&f.soak, "soak", 0, "")
	set.Float64Var(&f.churn, "churn", 0, "")
	locks := set.String("locks", "1000,10000", "")
	modes := set.String("modes", strings.Join([]string{load.None, load.PerLock, load.Batched}, ","), "")
	redisson := set.Bool("redisson", false, "")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	given := make(map[string]bool)
	set.Visit(func(g *flag.Flag) { given[g.Name] = true })
	if given["soak"] { // it changes some defaults, and makes one round
		if given["modes"] || *redisson {
			return f, errors.New("-soak is about batched locks: it goes without -modes and -redisson")
		}
		*modes, f.rounds = load.Batched, 1
		if !given["locks"] {
			*locks = "1000000"
		}
		if !given["clients"] {
			f.clients = 1
		}
	}
	if !given["duration"] {
		f.duration = f.interval()
	}
	if f.locks, err = parseLocks(*locks); err != nil {
		return f, err
	}
	wanted, err := cli.List("modes", *modes, allModes)
	if err != nil {
		return f, err
	}
	for _, mode := range allModes { // measure in this order
		if slices.Contains(wanted, mode) || mode == load.Redisson && *redisson {
			f.modes = append(f.modes, mode)
		}
	}
	if err := f.check(given["soak"]); err != nil {
		return f, err
	}
	// Round up to whole intervals: in a part of an interval, a watchdog per lock would renew all locks or none.
	f.duration = (f.duration + f.interval() - 1) / f.interval() * f.interval()
	return f, nil
}

func parseLocks(text string) ([]int, error) {
	var locks []int
	for s := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 || n > maxLocks {
			return nil, fmt.Errorf("-locks %s: want numbers from 1 to %d, separated by commas, such as 1000,10000",
				text, maxLocks)
		}
		locks = append(locks, n)
	}
	slices.Sort(locks)
	return slices.Compact(locks), nil
}

// check returns an error for invalid values and combinations.
func (f *flags) check(soak bool) error {
	switch {
	case f.cluster && f.rtt != 0:
		return errors.New(
			"-cluster and -rtt: nodes of a cluster tell clients their own addresses, which are not at a distance")
	case f.rtt < 0 || f.rtt > maxRTT:
		return fmt.Errorf("-rtt %v: want 0 (none) to %v", f.rtt, maxRTT)
	case f.churn != 0 && !soak:
		return errors.New("-churn goes with -soak")
	case f.lease < lock.MinLease || f.lease > lock.MaxLease:
		return fmt.Errorf("-lease %v: want %v to %v", f.lease, lock.MinLease, lock.MaxLease)
	case f.duration <= 0 || f.duration > maxDuration:
		return fmt.Errorf("-duration %v: want more than 0, and %v at most", f.duration, maxDuration)
	case f.rounds < 1 || f.rounds > maxRounds:
		return fmt.Errorf("-rounds %d: want 1 to %d", f.rounds, maxRounds)
	case f.clients < 1 || f.clients > maxClients:
		return fmt.Errorf("-clients %d: want 1 to %d", f.clients, maxClients)
	case f.locks[0] < 2*f.clients:
		return fmt.Errorf("-locks %d: want at least two for each of the %d -clients", f.locks[0], f.clients)
	case !(f.foreground >= 0 && f.foreground <= maxRate):
		return fmt.Errorf("-foreground %v: want 0 (none) to %d commands a second", f.foreground, maxRate)
	case !(f.churn >= 0 && f.churn <= maxRate):
		return fmt.Errorf("-churn %v: want 0 to %d pairs a second", f.churn, maxRate)
	case soak && (f.soak < soakIntervals*f.interval() || f.soak > maxDuration):
		return fmt.Errorf("-soak %v: want %v, three renewals, to %v", f.soak, soakIntervals*f.interval(), maxDuration)
	}
	return nil
}
