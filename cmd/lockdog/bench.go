package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/bench"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
)

// The bounds of bench's flags.
const (
	leastBench, mostBench = time.Second, 10 * time.Minute
	leastQPS, mostQPS     = 10, 100_000
)

func (a *app) benchCommand() *cobra.Command {
	var opts bench.Options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a lock costs on this Redis",
		Long: `Measure what a lock costs on this Redis: PING, a free lock taken and released, TryLock of a held lock, and how long a lock takes from one client to
another that waits. Each has a quarter of --duration. One operation is under way at a time, and begins only when all commands that were sent before it are
within --max-qps; "commands" is how many each of them sends.

It takes locks of names that nobody uses. One token counter stays for each --name. The time is what this machine sees, its network included.`,
		Args:              args(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case opts.Duration < leastBench || opts.Duration > mostBench:
				return usagef("--duration %v: must be between %v and %v", opts.Duration, leastBench, mostBench)
			case opts.MaxQPS < leastQPS || opts.MaxQPS > mostQPS:
				return usagef("--max-qps %d: must be between %d and %d", opts.MaxQPS, leastQPS, mostQPS)
			}
			a.conn.Sent = new(connect.Sent)
			opts.Sent = a.conn.Sent.Commands
			server, err := a.conn.Open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = server.Close() }()
			result, err := bench.Run(cmd.Context(), server, opts)
			if printErr := a.printBench(result); printErr != nil {
				return printErr
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&opts.Duration, "duration", 20*time.Second, "how long to measure")
	cmd.Flags().IntVar(&opts.MaxQPS, "max-qps", 200, "commands per second, at most")
	cmd.Flags().StringVar(&opts.Name, "name", "", "beginning of the names of locks that the user may touch")
	return cmd
}

// phaseTexts are the phases for people.
var phaseTexts = map[string]string{
	bench.Ping:     "PING",
	bench.Free:     "take and release a free lock",
	bench.Held:     "try a lock that is held",
	bench.HandOver: "from a release to another client that waits",
}

// printBench prints what was measured, and a summary.
func (a *app) printBench(result bench.Result) error {
	if a.json {
		for _, p := range result.Phases {
			if err := a.printJSON(p); err != nil {
				return err
			}
		}
		if result.CPU >= 0 {
			return a.printJSON(struct {
				CPU float64 `json:"redis_cpu_percent"`
			}{result.CPU})
		}
		return nil
	}
	if len(result.Phases) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "n\tp50\tp99\tmax\tcommands\t")
	for _, p := range result.Phases {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t  %s\n", p.N, micros(p.P50), micros(p.P99), micros(p.Max), p.Commands, phaseTexts[p.Phase])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var summary string
	byName := map[string]bench.Phase{}
	for _, p := range result.Phases {
		byName[p.Phase] = p
	}
	if free, ok := byName[bench.Free]; ok {
		summary += fmt.Sprintf("\nA free lock and its release take %s, two round trips; one caller can do %d per second.\n", micros(free.P50), 1_000_000/max(free.P50, 1))
	}
	if result.CPU >= 0 {
		summary += fmt.Sprintf("Meanwhile Redis used %.1f %% of a CPU for all its clients.\n", result.CPU)
	}
	_, err := fmt.Fprint(a.stdout, summary)
	return err
}

// micros is a time in µs for people.
func micros(us int64) string {
	return fmt.Sprintf("%.2f ms", float64(us)/1000)
}
