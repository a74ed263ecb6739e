//go:build !unix

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run a command while holding a lock; needs Unix",
		RunE: func(*cobra.Command, []string) error {
			return &exitError{
				code: exitCannotRun,
				err:  errors.New("run needs Unix: elsewhere a command can't be ended with all that it started"),
			}
		},
	}
}

func guard() bool { return false }

func endByInterrupt() {}
