package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/watchdog"
)

var errMissed = errors.New("a figure that everything rests on is wrong: see the results marked FAILED")

// load runs what was asked for, and reports whatever came of it.
func load(ctx context.Context, f flags, args []string, stdout, stderr io.Writer) error {
	out := newProgress(stderr)
	started := time.Now()
	if f.redis != "" {
		_, _ = fmt.Fprintf(stderr, "warning: the figures of Redis include whatever else uses %s meanwhile. "+
			"Keys start with \"loadtest:\"; small counters, lockdog:fence:*, stay behind.\n", redacted(f.redis))
	}
	b, err := openBench(ctx, f, out)
	if err != nil {
		return err
	}
	rep := &report.Report{
		Kind: "compare", Command: command(args, f.redis), Started: started.Format(time.RFC3339),
		Machine: machine(b.version), Settings: b.settings(),
	}
	switch {
	case f.soak > 0:
		rep.Kind = "soak"
		err = soak(ctx, b, rep)
	case f.wave:
		rep.Kind = "wave"
		err = wave(ctx, b, rep)
	default:
		err = compare(ctx, b, rep)
	}
	err = errors.Join(err, b.close())
	out.end()
	rep.Took, rep.Complete = time.Since(started).Seconds(), err == nil
	if len(rep.Rows) > 0 {
		err = errors.Join(err, hand(rep, f, stdout))
	}
	for _, t := range rep.Targets {
		if t.Hard && !t.Met && err == nil {
			err = errMissed
		}
	}
	return err
}

// command is what was typed, without a password: reports are passed around.
func command(args []string, addr string) string {
	words := []string{"go run -C loadtest ."}
	for _, arg := range args {
		if addr != "" {
			arg = strings.ReplaceAll(arg, addr, redacted(addr))
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

func redacted(addr string) string {
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		return u.Redacted()
	}
	return addr
}

// hand prints the table and writes the files.
func hand(rep *report.Report, f flags, stdout io.Writer) error {
	errs := []error{rep.Table(stdout)}
	for name, write := range map[string]func(io.Writer) error{f.json: rep.JSON, f.html: rep.HTML} {
		if name != "" {
			errs = append(errs, writeFile(name, write))
		}
	}
	return errors.Join(errs...)
}

func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

func (b *bench) settings() report.Settings {
	return report.Settings{
		Lease: b.lease.Seconds(), Interval: b.interval().Seconds(), Batch: watchdog.DefaultBatchSize, Clients: b.clients,
		Nodes: len(b.addrs), RTT: b.rtt.Seconds(), Foreground: b.flags.foreground, Churn: b.churn, Seed: b.seed, Context: "context.Background()",
	}
}

var modelName = regexp.MustCompile(`model name\s*:\s*(.*)`)

// machine is where this runs, as far as the system tells.
func machine(redis string) report.Machine {
	m := report.Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Redis: redis, Load: cli.LoadAverage()}
	text, _ := os.ReadFile("/proc/cpuinfo") // of Linux
	if found := modelName.FindSubmatch(text); found != nil {
		m.CPU = string(found[1])
	}
	return m
}
