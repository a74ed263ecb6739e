package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/doctor"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
)

func (a *app) doctorCommand() *cobra.Command {
	var strict bool
	var opts doctor.Options
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what on this Redis will hurt locks",
		Long: `Tell what on this Redis will hurt locks: settings that lose them, missing rights, clocks, slowness, nodes that are down. It connects as the
service would, takes and releases locks of names that nobody uses, and deletes their keys. One token counter stays for each --name.

Each finding has an id, what was found, what that means and what to do. Exits with 1 if one of them is a failure; with --strict unless each of
them is ok.`,
		Example: `  lockdog doctor --user app --name job                    may touch job*
  lockdog doctor --kind mutex --kind semaphore --strict   for CI`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, kind := range opts.Kinds {
				if !slices.Contains(doctor.Kinds(), kind) {
					return usagef("--kind %s: must be one of %s", kind, strings.Join(doctor.Kinds(), ", "))
				}
			}
			if strings.ContainsAny(opts.Name, "{}") {
				return usagef("--name %s: must have no braces", text.Safe(opts.Name))
			}
			server, err := a.conn.Open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = server.Close() }()
			opts.Timeout = a.conn.Timeout
			findings, err := doctor.Run(cmd.Context(), server, opts)
			if err != nil {
				return err
			}
			if err := a.printFindings(findings); err != nil {
				return err
			}
			if slices.ContainsFunc(findings, func(f doctor.Finding) bool {
				return f.Level == doctor.Fail || strict && f.Level != doctor.OK
			}) {
				return &exitError{code: exitNo}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 also for a warning, and for what couldn't be checked")
	cmd.Flags().StringVar(&opts.Name, "name", "",
		"beginning of the names of locks that the user may touch; its tries get names such as NAME:lockdog-doctor-...")
	cmd.Flags().StringSliceVar(&opts.Kinds, "kind", nil,
		"kind of lock or option that the service uses: a right it lacks is a failure, and other kinds aren't tried")
	completeWords(cmd, "kind", doctor.Kinds()...)
	return cmd
}

// marks are the levels as printed.
var marks = map[doctor.Level]string{doctor.OK: "ok", doctor.Warn: "WARN", doctor.Fail: "FAIL", doctor.Unknown: "?"}

// printFindings prints the findings. The worst come last, where they remain visible on a terminal, followed by the
// number for each level. With --json it prints only the findings, the worst first.
func (a *app) printFindings(findings []doctor.Finding) error {
	var values []any
	for _, f := range findings {
		values = append(values, f)
	}
	var out strings.Builder
	count := make(map[doctor.Level]int)
	for _, f := range slices.Backward(findings) {
		count[f.Level]++
		fmt.Fprintf(&out, "%-4s  %s: %s\n",
			marks[f.Level], text.Safe(strings.TrimSpace(f.ID+" "+f.Node)), text.OneLine(f.Found))
		if f.Level != doctor.OK {
			fmt.Fprintf(&out, "      means: %s\n      do:    %s\n", text.OneLine(f.Means), text.OneLine(f.Fix))
		}
	}
	fmt.Fprintf(&out, "\n%d failed, %d warnings, %d unknown, %d ok\n",
		count[doctor.Fail], count[doctor.Warn], count[doctor.Unknown], count[doctor.OK])
	return a.print(out.String(), values...)
}
