package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/lock"
)

// Limits of the flags.
const (
	maxLocks      = 10_000_000
	maxClients    = 64
	maxRounds     = 100
	maxDuration   = 24 * time.Hour
	maxForeground = 100_000
	maxChurn      = 100_000
	maxRTT        = time.Second

	renewalsPerLease = 3
	soakLocks        = 1_000_000
	soakIntervals    = 3 // at least
)

var allModes = []string{wire.None, wire.PerLock, wire.Batched, wire.Redisson}

// flags are what the command line can say.
type flags struct {
	redis      string
	cluster    bool
	rtt        time.Duration // from the clients to Redis; 0: as short as the machine's
	locks      []int
	lease      time.Duration
	duration   time.Duration // of one measurement: whole intervals
	rounds     int
	modes      []string
	clients    int
	foreground float64
	seed       uint64
	json, html string
	soak       time.Duration
	churn      float64
	wave       bool
}

func (f *flags) interval() time.Duration { return f.lease / renewalsPerLease }

// parse reads the command line, and finds what can't be before anything is started.
func parse(args []string) (flags, error) {
	var f flags
	var locks, modes string
	var redisson bool
	set := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	set.SetOutput(io.Discard) // cli.Run reports errors
	set.StringVar(&f.redis, "redis", "", "")
	set.BoolVar(&f.cluster, "cluster", false, "")
	set.DurationVar(&f.rtt, "rtt", 0, "")
	set.StringVar(&locks, "locks", "1000,10000", "")
	set.DurationVar(&f.lease, "lease", lock.DefaultLease, "")
	set.DurationVar(&f.duration, "duration", 0, "")
	set.IntVar(&f.rounds, "rounds", 2, "")
	set.StringVar(&modes, "modes", strings.Join([]string{wire.None, wire.PerLock, wire.Batched}, ","), "")
	set.BoolVar(&redisson, "redisson", false, "")
	set.IntVar(&f.clients, "clients", 2, "")
	set.Float64Var(&f.foreground, "foreground", 500, "")
	set.Uint64Var(&f.seed, "seed", 0, "")
	set.StringVar(&f.json, "json", "", "")
	set.StringVar(&f.html, "html", "", "")
	set.DurationVar(&f.soak, "soak", 0, "")
	set.Float64Var(&f.churn, "churn", 0, "")
	set.BoolVar(&f.wave, "wave", false, "")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	given := make(map[string]bool)
	set.Visit(func(g *flag.Flag) { given[g.Name] = true })
	for _, name := range []string{"redis", "json", "html"} {
		if given[name] && set.Lookup(name).Value.String() == "" {
			return f, fmt.Errorf("-%s is empty", name)
		}
	}
	if f.seed == 0 {
		f.seed = rand.Uint64()
	}

	// The other defaults depend on the kind of run.
	switch {
	case given["soak"]:
		if !given["locks"] {
			locks = strconv.Itoa(soakLocks)
		}
		if !given["clients"] {
			f.clients = 1
		}
		if given["modes"] || redisson {
			return f, errors.New("-soak is about batched locks: it goes without -modes and -redisson")
		}
		modes, f.rounds = wire.Batched, 1
	case f.wave:
		if !given["locks"] {
			locks = "10000"
		}
		if !given["modes"] {
			modes = wire.PerLock + "," + wire.Batched
		}
		f.rounds = 1
	}
	var err error
	if f.locks, err = parseLocks(locks); err != nil {
		return f, err
	}
	if f.modes, err = parseModes(modes, redisson); err != nil {
		return f, err
	}
	if f.duration == 0 && !given["duration"] {
		f.duration = f.interval()
	}
	return f, f.check(given)
}

func parseLocks(text string) ([]int, error) {
	var locks []int
	for s := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 || n > maxLocks {
			return nil, fmt.Errorf("-locks %s: want numbers from 1 to %d, separated by commas, such as 1000,10000", text, maxLocks)
		}
		locks = append(locks, n)
	}
	slices.Sort(locks)
	return slices.Compact(locks), nil
}

// parseModes gives them in the order in which they are measured.
func parseModes(text string, redisson bool) ([]string, error) {
	wanted, err := cli.List("modes", text, allModes)
	if redisson {
		wanted = append(wanted, wire.Redisson)
	}
	return slices.DeleteFunc(slices.Clone(allModes), func(m string) bool { return !slices.Contains(wanted, m) }), err
}

// check finds what can't be, and what can't be together.
func (f *flags) check(given map[string]bool) error {
	if f.redis != "" {
		if _, err := wire.Options(f.redis); err != nil {
			return fmt.Errorf("-redis %s: %w", f.redis, err)
		}
	}
	switch {
	case f.redis != "" && f.cluster:
		return errors.New("-redis and -cluster: a cluster is always this program's own")
	case f.redis != "" && f.rtt != 0:
		return errors.New("-redis and -rtt: the distance is put before a server of this program's own")
	case f.cluster && f.rtt != 0:
		return errors.New("-cluster and -rtt: nodes of a cluster tell clients their own addresses, which are not at a distance")
	case f.rtt < 0 || f.rtt > maxRTT:
		return fmt.Errorf("-rtt %v: want 0 (none) to %v", f.rtt, maxRTT)
	case f.redis != "" && f.wave:
		return errors.New("-redis and -wave: the wave cuts the connections of all clients, so the server has to be this program's own")
	case given["soak"] && f.wave:
		return errors.New("-soak and -wave: one at a time")
	case f.churn != 0 && !given["soak"]:
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
	case f.foreground < 0 || f.foreground > maxForeground:
		return fmt.Errorf("-foreground %v: want 0 (none) to %d commands a second", f.foreground, maxForeground)
	case f.churn < 0 || f.churn > maxChurn:
		return fmt.Errorf("-churn %v: want 0 to %d pairs a second", f.churn, maxChurn)
	case given["soak"] && (f.soak < soakIntervals*f.interval() || f.soak > maxDuration):
		return fmt.Errorf("-soak %v: want %v, three renewals, to %v", f.soak, soakIntervals*f.interval(), maxDuration)
	}
	if whole := (f.duration + f.interval() - 1) / f.interval() * f.interval(); whole > 0 {
		f.duration = whole // in a broken one, a watchdog per lock would call for all locks or for none
	}
	return nil
}
