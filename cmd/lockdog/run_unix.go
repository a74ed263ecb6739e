//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/child"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// runFlags are the flags of run.
type runFlags struct {
	wait             string
	lease, grace     time.Duration
	minHold, maxHold time.Duration
	takeoverDelay    time.Duration
	permits          int
	heartbeatFile    string
	heartbeat        time.Duration
	heldCode         int
}

const (
	waitForever      = "forever"
	defaultHeartbeat = time.Minute

	// The pause between two tries to connect to a Redis that is down; it doubles.
	openPause, maxOpenPause = 100 * time.Millisecond, 2 * time.Second

	// releaseWithin bounds how long the program waits for Redis to confirm the release.
	releaseWithin = 5 * time.Second

	// defaultTakeoverDelay allows for a machine with little CPU, which ends a command late.
	defaultTakeoverDelay = 5 * time.Second
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long: `Take the lock, run the command, and release the lock when the command has ended: flock(1) for a fleet. The lease is renewed while the command runs. If
lockdog dies, the lock is free one lease and one --takeover-delay later.

The command has LOCKDOG_NAME, LOCKDOG_TOKEN (a number that is larger for every later holder: have your storage refuse smaller ones) and TRACEPARENT in its
environment. Signals that lockdog gets are passed on to it. What it leaves running in the background when it ends runs on without the lock.

If the lock is lost, the command and all that it has started get SIGTERM, and SIGKILL after --grace. If Redis can't be reached, this comes before the
lease is over: nobody else has the lock before the command has ended. The same holds if lockdog is killed or stopped; the command's parent sees to it. If somebody deletes
or takes away the lock, lockdog learns of it some milliseconds later; where Redis refuses client tracking, of a deletion at the next renewal, a third of --lease later
at most.

Exit codes: that of the command, 128 and the number of the signal that ended it, or:
   64  a flag or an argument is wrong
   69  Redis can't be reached, or refuses
   75  the lock is held (--held-code)
   76  the lock was lost while the command ran
  124  --max-hold was over, or the heartbeat was missing
  126  the command can't be run
  127  the command doesn't exist`,
		Example: `  lockdog run backup -- ./backup.sh
  lockdog run report --wait 10m --max-hold 1h -- make report
  lockdog run nightly --min-hold 50s --held-code 0 -- ./job  # in each server's
                                          # crontab: one of them runs it
  lockdog run workers --semaphore 5 --wait forever -- ./work`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault // the command and its arguments
		},
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usagef("usage: %s NAME [flags] -- COMMAND [ARG...]; '%[1]s -h' says more", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), f, args[0], args[1:]) },
	}
	set := cmd.Flags()
	set.StringVar(&f.wait, "wait", "0",
		"how long to wait for the lock, and for a Redis that is down: a duration, or "+waitForever)
	set.DurationVar(&f.lease, "lease", 30*time.Second,
		"how long the command may go on without Redis, or after lockdog died; renewed every third of it")
	set.DurationVar(&f.takeoverDelay, "takeover-delay", defaultTakeoverDelay,
		"how long the lock stays taken after a lease that ran out, for the command to be dead by then")
	set.DurationVar(&f.grace, "grace", 0,
		"time between SIGTERM and SIGKILL, a third of the lease at most (default 5s, or that)")
	set.DurationVar(&f.minHold, "min-hold", 0, "leave the lock taken for that long, though the command has ended")
	set.DurationVar(&f.maxHold, "max-hold", 0, "end the command after that long")
	set.IntVar(&f.permits, "semaphore", 0,
		"take one of that many permits of a semaphore, instead of a lock; sets its total")
	set.StringVar(&f.heartbeatFile, "heartbeat-file", "",
		"end the command if it doesn't touch this file for --heartbeat")
	set.DurationVar(&f.heartbeat, "heartbeat", defaultHeartbeat,
		"with --heartbeat-file: how often the command must touch it")
	set.IntVar(&f.heldCode, "held-code", exitHeld, "exit code if the lock is held by another")
	completeFiles(cmd, "heartbeat-file")
	completeWords(cmd, "wait", waitForever)
	return cmd
}

// options checks the flags, sets f.grace if it is 0, and returns the lock's options except WithWait. A negative wait
// means forever.
func (f *runFlags) options(ctx context.Context) (wait time.Duration, opts []lock.LockOption, err error) {
	switch f.wait {
	case waitForever:
		wait = -1
	default:
		if wait, err = time.ParseDuration(f.wait); err != nil || wait < 0 {
			return 0, nil, usagef("--wait %q: must be a duration such as 10s, or %s", f.wait, waitForever)
		}
	}
	if f.grace == 0 {
		f.grace = min(5*time.Second, f.lease/3)
	}
	switch {
	case f.grace < 0 || f.grace > f.lease/3:
		return 0, nil, usagef(
			"--grace %v: must be between 0 (the default) and %v, a third of --lease: the command has to end before the lease does",
			f.grace, f.lease/3)
	case f.takeoverDelay < 0 || f.takeoverDelay > 24*time.Hour:
		return 0, nil, usagef("--takeover-delay %v: must be between 0 and 24h", f.takeoverDelay)
	case f.permits < 0:
		return 0, nil, usagef("--semaphore %d: must be 1 or more", f.permits)
	case f.permits > 0 && f.minHold != 0:
		return 0, nil, usagef(
			"--min-hold and --semaphore contradict each other: a permit is free when the command has ended")
	case f.minHold < 0 || f.maxHold != 0 && f.minHold > f.maxHold:
		return 0, nil, usagef("--min-hold %v: must be between 0 and --max-hold", f.minHold)
	case f.maxHold != 0 && f.maxHold < f.lease/3:
		return 0, nil, usagef("--max-hold %v: must be %v or more, a third of --lease: give a shorter --lease, too",
			f.maxHold, f.lease/3)
	case f.heartbeatFile != "" && f.heartbeat < f.lease/3:
		return 0, nil, usagef("--heartbeat %v: must be %v or more, a third of --lease: give a shorter --lease, too",
			f.heartbeat, f.lease/3)
	case f.heartbeatFile == "" && f.heartbeat != defaultHeartbeat:
		return 0, nil, usagef("--heartbeat needs --heartbeat-file")
	case f.heldCode < 0 || f.heldCode > 255:
		return 0, nil, usagef("--held-code %d: must be between 0 and 255", f.heldCode)
	}
	// WithLifetime: the end of ctx must not end the lease, because the command gets the signal and may take time to
	// end.
	opts = append(opts, lock.WithLease(f.lease), lock.WithTakeoverDelay(f.takeoverDelay),
		lock.WithLifetime(context.WithoutCancel(ctx)))
	if f.minHold != 0 {
		opts = append(opts, lock.WithMinHold(f.minHold))
	}
	if f.maxHold != 0 {
		opts = append(opts, lock.WithMaxHold(f.maxHold))
	}
	if f.heartbeatFile != "" {
		opts = append(opts, lock.WithHeartbeat(f.heartbeat))
	}
	return wait, opts, nil
}

// run acquires the lock, runs the command and releases the lock.
func (a *app) run(ctx context.Context, f runFlags, name string, command []string) (err error) {
	wait, opts, err := f.options(ctx)
	if err != nil {
		return err
	}
	// If nobody reads stderr any more, a write to it must fail and not end the program. Ignoring SIGPIPE would do the
	// same, but the command would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	t, stop := a.telemetry(ctx)
	defer stop()
	parent := t.Propagator.Extract(ctx, propagation.MapCarrier{
		"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE"),
	})
	ctx, span := t.TracerProvider.
		Tracer("github.com/lockdog/lockdog/cmd/lockdog", trace.WithInstrumentationVersion(telemetry.Version)).
		Start(parent, "lockdog run", trace.WithAttributes(
			telemetry.KeyName.String(name), attribute.String("process.executable.name", command[0])))
	defer func() {
		code := exitCode(ctx, err)
		span.SetAttributes(attribute.Int("process.exit.code", code))
		if code != 0 {
			span.SetStatus(codes.Error, fmt.Sprint(err))
		}
		span.End()
	}()
	began := time.Now()
	server, err := a.open(ctx, wait)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	if wait > 0 {
		opts = append(opts, lock.WithWait(max(wait-time.Since(began), time.Millisecond)))
	}
	c, err := a.client(server, t, lock.WithLossNotifications())
	if err != nil {
		return err
	}
	defer func() {
		// By now the lease is released, or runs out by itself: Redis didn't confirm the release, or the command left a
		// process that can't be killed.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		_ = c.Close(closing)
	}()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, endings...)
	defer signal.Stop(signals)
	l, err := take(ctx, c, f, name, wait, opts)
	if err != nil {
		if errors.Is(err, lock.ErrHeld) && ctx.Err() == nil {
			return &exitError{code: f.heldCode, err: err}
		}
		return err
	}
	return (&running{app: a, flags: f, lease: l, propagator: t.Propagator, stat: os.Stat}).run(ctx, signals, command)
}

// open connects. If Redis is down, it retries: the last try begins within wait, and may take longer. If wait is
// negative, it retries without an end.
func (a *app) open(ctx context.Context, wait time.Duration) (*connect.Server, error) {
	over := time.Now().Add(wait)
	for pause := openPause; ; pause = min(2*pause, maxOpenPause) {
		server, err := a.conn.Open(ctx)
		if err == nil || !connect.IsDown(err) || ctx.Err() != nil || wait >= 0 && time.Now().Add(pause).After(over) {
			return server, err
		}
		if pause == openPause {
			_, _ = fmt.Fprintf(a.stderr, "%s; waiting for it\n", errorText(err))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// take acquires the lock, or a permit.
func take(
	ctx context.Context, c *lock.Client, f runFlags, name string, wait time.Duration, opts []lock.LockOption,
) (*lock.Lease, error) {
	var l lock.Locker = c.Mutex(name, opts...)
	if f.permits > 0 {
		s := c.Semaphore(name, opts...)
		if err := s.EnsurePermits(ctx, f.permits); err != nil {
			return nil, err
		}
		l = s
	}
	if wait == 0 {
		return l.TryLock(ctx)
	}
	return l.Lock(ctx)
}

// running is a command that runs under a lock.
type running struct {
	*app
	flags      runFlags
	lease      *lock.Lease
	propagator propagation.TextMapPropagator
	stat       func(path string) (os.FileInfo, error)
	child      *child.Child
	last       child.Limit // see limit
}

// passed are the signals that are passed on to the command. SIGINT and SIGHUP are omitted if they were ignored when the
// program started, for example by nohup. See endings.
var passed = slices.DeleteFunc([]os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGWINCH,
}, signal.Ignored)

// run runs the command, and then releases the lock, unless something that the command started can't be killed. signals
// must have been registered for endings before the acquire. run reads signals and doesn't ask ctx, because ctx ends
// some time after the signal.
func (r *running) run(ctx context.Context, signals chan os.Signal, command []string) error {
	if ended := r.ifSignaled(ctx, signals, nil); ended != nil {
		return ended
	}
	signal.Notify(signals, passed...)
	err := r.start(ctx, command)
	if err != nil {
		if ended := r.ifSignaled(ctx, signals, err); ended != nil { // the signal may have ended the guard
			return ended
		}
		code := child.CannotRun(err)
		if errors.Is(err, child.ErrTooLate) {
			code = exitLost
			if cause := context.Cause(r.lease.Context()); cause != nil {
				var what string
				code, what = endedBy(cause)
				err = fmt.Errorf("%w; %s: %w", err, what, cause)
			}
		}
		return &exitError{code: code, err: errors.Join(fmt.Errorf("%s: %w", command[0], err), r.release(ctx))}
	}
	if r.flags.heartbeatFile != "" {
		go r.beat()
	}
	ended := r.watch(signals)
	nothingLeft := r.child.Close()
	if ended == nil && r.child.Orphaned() {
		_, _ = fmt.Fprintln(r.stderr,
			"lockdog: the process that guards the command was killed, and so the command was, too")
	}
	return r.finish(ctx, ended, r.child.ExitCode(), nothingLeft)
}

// ifSignaled releases the lock if one of endings has come, and returns the error to end with, which contains err.
// Otherwise it returns nil.
func (r *running) ifSignaled(ctx context.Context, signals <-chan os.Signal, err error) error {
	for {
		select {
		case sig := <-signals:
			if came := sig.(syscall.Signal); slices.Contains(endings, sig) { // the only kind of os.Signal
				err = errors.Join(signalError(came), err, r.release(ctx))
				return &exitError{code: exitSignal + int(came), err: err}
			}
		default:
			return nil
		}
	}
}

// finish releases the lock after the command has ended with a code, unless something that it started is left. It
// returns the error with the exit code, nil for 0. ended is why lockdog or the guard made the command end; nil: they
// didn't. nothingLeft is what Child.Close has returned.
func (r *running) finish(ctx context.Context, ended error, code int, nothingLeft bool) error {
	var err error
	if nothingLeft {
		err = r.release(ctx)
	} else {
		_, _ = fmt.Fprintln(r.stderr,
			"lockdog: something that the command started can't be killed, so the lock isn't released")
	}
	switch {
	case ended == nil && errors.Is(err, lock.ErrLost):
		return &exitError{code: exitLost, err: fmt.Errorf(
			"the command ended with %d, but the lock had been lost: another may have worked at the same time: %w",
			code, err)}
	case err != nil && !errors.Is(err, lock.ErrLost):
		_, _ = fmt.Fprintf(r.stderr,
			"lockdog: the command ended with %d; the release isn't confirmed, so the lock is free in %v at the latest: %s\n",
			code, max(r.flags.lease+r.flags.takeoverDelay, r.flags.minHold), text.OneLine(err.Error()))
	}
	if ended != nil {
		return ended
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// release releases the lock. It takes at most releaseWithin, however long the lease is.
func (r *running) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	return r.lease.Release(ctx)
}

func (r *running) start(ctx context.Context, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = file(r.stdin), file(r.stdout), file(r.stderr)
	carrier := propagation.MapCarrier{}
	r.propagator.Inject(ctx, carrier)
	cmd.Env = append(os.Environ(), "LOCKDOG_NAME="+r.lease.Name(), fmt.Sprintf("LOCKDOG_TOKEN=%d", r.lease.Token()))
	for _, name := range []string{"traceparent", "tracestate"} {
		if value := carrier[name]; value != "" {
			cmd.Env = append(cmd.Env, strings.ToUpper(name)+"="+value)
		}
	}
	var err error
	r.child, err = child.Start(cmd, "lockdog: guard of "+r.lease.Name()+":", r.limit())
	return err
}

// limit returns when the command must end unless a renewal succeeds first: SIGTERM (Ask) comes one grace before the
// deadline (Kill). The grace is at most a third of the time that is left of the lease when the deadline becomes known.
// That may be much less than --lease: a lease that another process handed over is short until its first renewal.
func (r *running) limit() child.Limit {
	if deadline := r.lease.Deadline(); !deadline.Equal(r.last.Kill) {
		grace := min(r.flags.grace, max(time.Until(deadline)/3, 0))
		r.last = child.Limit{Ask: deadline.Add(-grace), Kill: deadline}
	}
	return r.last
}

// file returns a stream as a standard file for the command. It is nil if the stream is no file; then the command gets
// /dev/null.
func file(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}

var errNoRenewal = fmt.Errorf("no renewal in time, so it is about to be lost: %w", lock.ErrUnavailable)

// watch watches the command and the lease until the command has ended. It returns why lockdog or the guard made the
// command end, nil if they didn't.
func (r *running) watch(signals <-chan os.Signal) (why error) {
	tick := time.NewTicker(max(r.flags.lease/30, 10*time.Millisecond))
	defer tick.Stop()
	over := r.lease.Context().Done()
	for {
		select {
		case <-r.child.Done():
			// The guard has asked the command to end, and we haven't. What the command has started must end too.
			if why == nil && r.child.Asked() {
				why = r.end(cmp.Or(context.Cause(r.lease.Context()), errNoRenewal))
			}
			return why
		case sig := <-signals:
			if s, ok := sig.(syscall.Signal); ok {
				r.child.Signal(s)
			}
		case <-over:
			over = nil
			if why == nil {
				why = r.end(context.Cause(r.lease.Context()))
			}
		case <-tick.C:
			limit := r.limit()
			switch {
			case why != nil:
			case time.Now().Before(limit.Ask):
				r.child.Extend(limit)
			default:
				why = r.end(errNoRenewal)
			}
		}
	}
}

// beat forwards the heartbeat until the command has ended. It runs in its own goroutine because stat may hang: then
// only the heartbeat is missing, and watch continues.
func (r *running) beat() {
	tick := time.NewTicker(max(min(r.flags.lease/30, r.flags.heartbeat/4), 10*time.Millisecond))
	defer tick.Stop()
	var touched time.Time // modification time when last seen
	for {
		select {
		case <-r.child.Done():
			return
		case <-tick.C:
		}
		if info, err := r.stat(r.flags.heartbeatFile); err == nil && !info.ModTime().Equal(touched) {
			if !touched.IsZero() || info.ModTime().After(time.Now().Add(-r.flags.heartbeat)) {
				r.lease.Heartbeat()
			}
			touched = info.ModTime()
		}
	}
}

// endedBy returns the exit code and the text for a cause: that of the end of the lease's context, or errNoRenewal.
func endedBy(cause error) (code int, what string) {
	var canceled *lock.CanceledError
	if errors.As(cause, &canceled) {
		return exitOvertime, "the command may not go on"
	}
	return exitLost, "the lock is lost"
}

// end asks the command to end, because the lock is lost or about to be, or because a limit on holding it was reached.
// What is left after the grace, or at the lease's deadline, is killed.
func (r *running) end(cause error) error {
	code, what := endedBy(cause)
	until := time.Now().Add(r.flags.grace)
	if deadline := r.lease.Deadline(); deadline.Before(until) { // another may hold the lock after the deadline
		until = deadline
	}
	err := fmt.Errorf("%s: %w", what, cause)
	r.child.End(until) // before the write to stderr, which may block
	_, _ = fmt.Fprintf(r.stderr, "%s; the command has %v to end\n", errorText(err),
		max(time.Until(until), 0).Round(time.Millisecond))
	return &exitError{code: code, err: err, said: true}
}

// endByInterrupt ends this program by SIGINT: after Ctrl-C, a shell ends its script only if SIGINT ended the command.
// It does nothing if SIGINT was ignored when the program started, or in process 1.
func endByInterrupt() {
	if !slices.Contains(endings, os.Interrupt) || os.Getpid() == 1 { // the kernel spares process 1
		return
	}
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // another thread may get the signal, a moment later
}

// guard runs the guard, the parent of the command, if run has started this process as one. Otherwise it returns false.
func guard() bool { return child.Guard() }
