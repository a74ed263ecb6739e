package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
	"github.com/lockdog/lockdog/telemetry"
)

// The exit codes. run uses codes that commands rarely use: those of sysexits.h where it has a fitting one.
const (
	exitOK = 0
	// exitNo: the lock is free (who), the user didn't agree (unlock), there is a deadlock (graph), something is wrong
	// (doctor), or there was a failure for which there is no other code.
	exitNo          = 1
	exitUsage       = 64  // a flag, an argument or a setting is wrong
	exitUnavailable = 69  // Redis can't be reached, couldn't be read in full, refuses the user, or can't serve now
	exitOutput      = 74  // the output couldn't be written
	exitHeld        = 75  // the lock is held by another
	exitLost        = 76  // the lock was lost, or about to be, while the command ran or before it began
	exitOvertime    = 124 // --max-hold was over, or the heartbeat was missing; the code of timeout(1)
	exitCannotRun   = 126 // the command can't be run; the code of shells
	exitNotFound    = 127 // there is no such command; the code of shells
	exitSignal      = 128 // plus the number of the signal that ended the command or lockdog; the code of shells
)

// exitError ends the program with a code.
type exitError struct {
	code int
	err  error // to print on stderr; nil: nothing
	said bool  // err has been printed already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns an error for a wrong flag or argument.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// redisCLI matches the error for a flag of redis-cli: -p port, -a password, or -h followed by an IPv4 address without a
// space. -h is help here, so the error is about the address's first character.
var redisCLI = regexp.MustCompile(`^unknown shorthand flag: '(p|a|[0-9.])'`)

// app has what all commands use.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	conn connect.Flags
	json bool
}

// run runs the program, and returns its exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	logging.Disable() // the log of go-redis: failures are returned as errors
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ctx, stop := untilSignal()
	defer stop()
	err := root.ExecuteContext(ctx)
	var silent *exitError
	if err != nil && (!errors.As(err, &silent) || silent.err != nil && !silent.said) {
		_, _ = fmt.Fprintln(stderr, errorText(err))
	}
	return exitCode(ctx, err)
}

// errorText returns an error as the program prints it: on one line that begins with the program's name. The library's
// errors begin with that name too. It is removed at the beginning and after a colon.
func errorText(err error) string {
	return "lockdog: " + strings.ReplaceAll(strings.TrimPrefix(text.OneLine(err.Error()), "lockdog: "), ": lockdog: ", ": ")
}

// signalError is the cause of a ctx that a signal ended.
type signalError syscall.Signal

func (e signalError) Error() string { return syscall.Signal(e).String() }

// endings are the signals that ask the program to end. SIGINT is omitted if it was ignored when the program started, as
// in a script's background jobs. signal.Ignored must be called before the first Notify, because Notify ends the
// ignoring. SIGTERM always remains: Go's runtime handles it even if it was ignored.
var endings = slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM}, signal.Ignored)

// untilSignal returns a ctx that ends with a signalError at the first signal of endings. stop ends ctx too, and
// restores the signals' default effect.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, endings...)
	go func() {
		select {
		case sig := <-signals:
			// If the program hangs, the next signal ends it, unless lockdog run listens, too.
			signal.Stop(signals)
			cancel(signalError(sig.(syscall.Signal))) // the only kind of os.Signal
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(context.Canceled)
	}
}

// command returns the root command with all others below it.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "lockdog",
		Short: "See, take and free the locks of a Redis",
		Long: `lockdog shows who holds and awaits the locks of a Redis, runs commands under a lock, and takes locks away. It renews the leases of
a machine's programs in common calls, and tells what a Redis will do to locks.

The locks are those of programs that use github.com/lockdog/lockdog, and of Redisson. The address is -u or $REDIS_URL. Whether it is that of a single
server, a Cluster or Sentinels, lockdog asks the server. The password is $REDISCLI_AUTH, or in $REDIS_URL, or in a file: --password-file.

Exit codes: 0; 1 for "no" (who: the lock is free; graph: there is a deadlock; doctor: something is
wrong); 64 if a flag, an argument or a setting is wrong; 69 if Redis can't be reached, refuses, or
couldn't be read in full; 74 if the output can't be written. Those of run are more: 'lockdog run -h'.`,
		Example: `  lockdog ls 'orders:*'              which locks are held and awaited
  lockdog who orders:42              who holds this one, since when, who waits
  lockdog graph                      who waits for whom, and deadlocks
  lockdog watch                      the same, live
  lockdog unlock orders:42 --force   take it away from its holder
  lockdog run backup -- ./backup.sh  run a command while holding a lock
  lockdog agent                      renew for all programs of a machine
  lockdog doctor                     what will hurt locks on this Redis`,
		Version:           telemetry.Version,
		Args:              noSuchCommand,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,

		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if redisCLI.MatchString(err.Error()) {
			return usagef("%w; the address is -u host:port, and the password is in $%s", err, connect.EnvPassword)
		}
		return usagef("%w; '%s -h' lists the flags", err, cmd.CommandPath())
	})
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	a.conn.Register(root.PersistentFlags())
	completeFiles(root, "cacert", "cert", "key", "password-file")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, an object per line")
	for _, add := range []func() *cobra.Command{
		a.lsCommand, a.whoCommand, a.graphCommand, a.watchCommand, a.unlockCommand, a.runCommand, a.agentCommand,
		a.doctorCommand,
	} {
		root.AddCommand(add())
	}
	narrowHelp(root)
	return root
}

// completeFiles makes shells complete file names after flags. The default is no completion.
func completeFiles(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		// The error would be about an unknown flag.
		_ = cmd.RegisterFlagCompletionFunc(flag,
			func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveDefault
			})
	}
}

// completeWords makes shells complete some words after a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// noSuchCommand returns an error if there are arguments: they begin with something that is no command.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return usagef("there is no command %q; do you mean %s?", args[0], strings.Join(like, " or "))
	}
	return usagef("there is no command %q; '%s -h' lists them", args[0], cmd.CommandPath())
}

// args returns a check of the arguments: that their number is in the range, and that the first isn't the URL of a
// Redis. (For host:port see addressHint.)
func args(least, most int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("usage: %s %s; '%[1]s -h' says more", cmd.CommandPath(), usage)
		}
		if len(args) > 0 {
			if scheme, _, ok := strings.Cut(args[0], "://"); ok &&
				slices.Contains([]string{"redis", "rediss", "unix"}, strings.ToLower(scheme)) {
				return usagef("usage: %s %s; the address of Redis is given with -u", cmd.CommandPath(), usage)
			}
		}
		return nil
	}
}

// addressHint returns a text to append if a pattern may be meant as an address, otherwise "".
func addressHint(pattern string) string {
	host, port, err := net.SplitHostPort(pattern)
	if n, convErr := strconv.Atoi(port); err != nil || convErr != nil || n < 1024 || n > 65535 || host == "" {
		return ""
	}
	return "; " + text.Safe(pattern) +
		" is taken for a pattern of names: the address of Redis is given with -u host:port"
}

// reader connects for reading locks. A call isn't retried, and waits for --timeout at most for a reply. When ctx ends,
// the client is closed, so that calls fail.
func (a *app) reader(ctx context.Context) (*connect.Server, *fleet.Reader, error) {
	a.conn.Once = true
	server, err := a.conn.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	reader, err := fleet.New(server.UniversalClient, server.Prefix)
	return server, reader, err
}

// patternOf returns the pattern among the arguments, "" if there is none.
func patternOf(args []string) string { return strings.Join(args, "") } // at most one

// unread adds the exit code exitUnavailable to an error of a reading, unless a signal ended the reading, the pattern is
// invalid, or the key holds no lock.
func unread(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, fleet.ErrInvalid) || errors.Is(err, fleet.ErrNotALock) {
		return err
	}
	return &exitError{code: exitUnavailable, err: err}
}

// print prints a text, or with --json the values instead, each on a line. In the JSON, it escapes characters that are
// unsafe for a terminal: they can occur only within strings.
func (a *app) print(plain string, values ...any) error {
	if a.json {
		var lines strings.Builder
		e := json.NewEncoder(&lines)
		e.SetEscapeHTML(false)
		for _, v := range values {
			if err := e.Encode(v); err != nil {
				return err
			}
		}
		plain = text.EscapeJSON(lines.String())
	}
	if _, err := io.WriteString(a.stdout, plain); err != nil {
		return &exitError{code: exitOutput, err: err}
	}
	return nil
}

// exitCode returns the program's exit code. ctx must be that of untilSignal, or derived from it.
func exitCode(ctx context.Context, err error) int {
	var exit *exitError
	var sig signalError
	var refused redis.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, connect.ErrUsage), errors.Is(err, lock.ErrInvalid),
		errors.Is(err, fleet.ErrInvalid), errors.Is(err, fleet.ErrNotALock):
		return exitUsage
	case errors.As(context.Cause(ctx), &sig):
		return exitSignal + int(sig)
	case errors.Is(err, connect.ErrConnect), errors.Is(err, lock.ErrUnavailable):
		return exitUnavailable
	case errors.Is(err, lock.ErrHeld):
		return exitHeld
	case errors.As(err, &refused):
		return exitUnavailable
	}
	return exitNo
}
