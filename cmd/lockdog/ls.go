package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock/fleet"
)

// The values of ls --sort.
const (
	byName    = "name"
	byAge     = "age"
	byWaiting = "waiting"
)

func (a *app) lsCommand() *cobra.Command {
	var order string
	var longer time.Duration
	var awaited bool
	var traces traceURL
	cmd := &cobra.Command{
		Use:   "ls [PATTERN]",
		Short: "List the locks that are held or awaited",
		Long: `List the locks that are held, by lockdog's clients and Redisson's: name, kind, holder, for how long it is held, what is left of its lease unless
it is renewed, and how many clients wait. PATTERN is one of Redis's, such as 'orders:*'; quote it.

It reads all keys of all primaries, a thousand at a time with pauses, and changes nothing. Semaphores are listed while a permit is held. Unleased semaphores
and latches are numbers like any other in Redis: who shows one by its name. Of waiters Redis knows one per client and name, all that have lasted for a second, and none of Redisson's before a lock
that isn't fair.`,
		Args: args(0, 1, "[PATTERN]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{byName, byAge, byWaiting}, order) {
				return usagef("--sort %s: must be %s, %s or %s", order, byName, byAge, byWaiting)
			}
			pattern := patternOf(args)
			_, reader, err := a.reader(cmd.Context())
			if err != nil {
				return fmt.Errorf("%w%s", err, addressHint(pattern))
			}
			var locks []fleet.Lock
			var errs []error
			for l, err := range reader.Locks(cmd.Context(), pattern) {
				switch {
				case err != nil:
					errs = append(errs, err)
				case l.Held == 0 && l.Waiting == 0, awaited && l.Waiting == 0,
					longer > 0 && (text.Since(l).IsZero() || time.Since(text.Since(l)) < longer):
				default:
					locks = append(locks, l)
				}
			}
			sortLocks(locks, order)
			if err := a.printLocks(locks, traces); err != nil {
				return err
			}
			if len(locks) == 0 && len(errs) == 0 {
				_, _ = fmt.Fprintln(a.stderr, "no lock matches"+addressHint(pattern))
			}
			return unread(cmd.Context(), errors.Join(errs...))
		},
	}
	cmd.Flags().StringVar(&order, "sort", byName,
		"name; age, the longest hold first; or waiting, the most waiters first")
	cmd.Flags().DurationVar(&longer, "longer-than", 0,
		"only locks that are held for longer; leaves out those of which Redis doesn't say")
	cmd.Flags().BoolVar(&awaited, "awaited", false, "only locks that somebody waits for")
	completeWords(cmd, "sort", byName, byAge, byWaiting)
	traceFlag(cmd, &traces)
	return cmd
}

func sortLocks(locks []fleet.Lock, order string) {
	slices.SortFunc(locks, func(a, b fleet.Lock) int {
		var first int
		switch order {
		case byAge:
			first = text.Earlier(text.Since(a), text.Since(b))
		case byWaiting:
			first = cmp.Compare(b.Waiting, a.Waiting)
		}
		return cmp.Or(first, cmp.Compare(a.Name, b.Name))
	})
}

func (a *app) printLocks(locks []fleet.Lock, traces traceURL) error {
	if a.json {
		var views []any
		for _, l := range locks {
			views = append(views, traces.view(l))
		}
		return a.print("", views...)
	}
	if len(locks) == 0 {
		return nil
	}
	var rows text.Rows
	rows.Add("NAME", "KIND", "HOLDER", "FOR", "LEASE LEFT", "WAITING")
	for _, l := range locks {
		left := "-"
		if l.Held > 0 {
			left = text.Span(l.Remaining)
		}
		rows.Add(text.Safe(l.Name), text.Kind(l), text.Holder(l),
			text.Age(text.Since(l), time.Now()), left, strconv.Itoa(l.Waiting))
	}
	return a.print(rows.String())
}
