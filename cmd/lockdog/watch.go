package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/changes"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/screen"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock/fleet"
)

// leastInterval is the minimum of --interval.
const leastInterval = 200 * time.Millisecond

func (a *app) watchCommand() *cobra.Command {
	w := watch{app: a}
	cmd := &cobra.Command{
		Use:   "watch [PATTERN]",
		Short: "Show the locks that are held or awaited, live",
		Long: `Show the locks that are held, as ls does, and read them again and again: who holds them, for how long, what is left of each lease, and how many wait.
Below are the last changes. PATTERN is one of Redis's, such as 'orders:*'; quote it. Keys: q quits, ? shows the others.

Where stdout is no terminal, and with --json, there is no screen. Each change is a line then: its time, what it is, the lock, and who. stdin isn't read.

It reads all keys of all primaries each time, a thousand at a time with pauses, and changes nothing. It only sees what a reading finds:
  - A change is seen at the next reading. What begins and ends between two readings isn't seen. Several changes between two readings are one.
  - A lock that is free isn't found, even if somebody waits for it.
  - "lease_over" is a conclusion: the lease was in its second half, its end came, and the lock was gone or another's. A release just before that end
    looks the same.
  - Of semaphores Redis doesn't know the holders.
  - The waiting time that a group causes is that of the waiters that Redis knows, as ls says, from reading to reading. A name's group is what is
    before its first colon.
  - Ages compare Redis's clock with this machine's.
If Redis can't be read, it says so, goes on showing what it read last, and tries again after each interval.`,
		Args: args(0, 1, "[PATTERN]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.interval < leastInterval {
				return usagef("--interval %v: must be %v or more", w.interval, leastInterval)
			}
			if w.count < 0 {
				return usagef("--count %d: must be 0 or more", w.count)
			}
			w.pattern = patternOf(args)
			return w.run(cmd.Context())
		},
	}
	cmd.Flags().DurationVar(&w.interval, "interval", time.Second,
		"from the end of one reading to the start of the next; "+leastInterval.String()+" or more")
	cmd.Flags().IntVar(&w.count, "count", 0, "how many times to read; 0: until it is ended")
	return cmd
}

// watch is one run of the command.
type watch struct {
	*app
	pattern  string
	interval time.Duration
	count    int
}

func (w *watch) run(ctx context.Context) error {
	server, reader, err := w.reader(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Nothing waits for the end of this goroutine: a call to a silent server takes up to --timeout.
	readings := make(chan screen.Reading)
	go w.read(ctx, reader, readings)
	if out, ok := terminal(w.stdout); ok && !w.json {
		return w.onScreen(ctx, out, server.Addr, readings)
	}
	return w.inLines(ctx, readings)
}

// terminal returns the file behind an input or output. It reports whether that is a terminal with cursor control.
func terminal(f any) (*os.File, bool) {
	file, ok := f.(*os.File)
	return file, ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// read reads the locks repeatedly, and closes the channel after w.count readings (0: never). It doesn't send a reading
// during which ctx ended: that may have been cut short, which is no failure of Redis.
func (w *watch) read(ctx context.Context, reader *fleet.Reader, to chan<- screen.Reading) {
	var tracker changes.Tracker
	for n := 1; ; n++ {
		look := lookAt(ctx, reader, w.pattern)
		if ctx.Err() != nil {
			return
		}
		r := screen.Reading{Began: look.Began, Ended: look.Ended, Err: look.Err}
		r.Locks, r.Events = tracker.Add(look)
		r.Groups, r.Since = tracker.Groups(mostGroups)
		select {
		case to <- r:
		case <-ctx.Done():
			return
		}
		if n == w.count {
			close(to)
			return
		}
		select {
		case <-time.After(w.interval):
		case <-ctx.Done():
			return
		}
	}
}

// lookAt reads all locks once.
func lookAt(ctx context.Context, reader *fleet.Reader, pattern string) changes.Look {
	look := changes.Look{Began: time.Now()}
	var errs []error
	for l, err := range reader.Locks(ctx, pattern) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		look.Locks = append(look.Locks, changes.Seen{Lock: l, At: time.Now()})
	}
	look.Ended, look.Err = time.Now(), errors.Join(errs...)
	return look
}

// signaled returns the error with which the program ends after a signal.
func signaled(ctx context.Context) error { return &exitError{code: exitCode(ctx, context.Cause(ctx))} }

// onScreen shows the readings on a terminal, until the user quits or feed returns.
func (w *watch) onScreen(ctx context.Context, out *os.File, server string, readings <-chan screen.Reading) error {
	var in io.Reader // nil if stdin is no terminal: then a signal ends the command
	if f, ok := terminal(w.stdin); ok {
		in = f
	}
	model := screen.New(screen.Config{Server: server, Pattern: w.pattern, Interval: w.interval, Now: time.Now()})
	program := tea.NewProgram(model, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	ended := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- feed(ctx, program, readings, ended)
		program.Quit()
	}()
	_, err := program.Run()
	close(ended)
	return errors.Join(err, <-result)
}

// feed sends readings and the time to the screen. It returns when the screen has ended, the readings have ended, ctx
// has ended, or the pattern is invalid.
func feed(ctx context.Context, program *tea.Program, readings <-chan screen.Reading, ended <-chan struct{}) error {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	var last error
	for {
		select {
		case r, ok := <-readings:
			if !ok {
				return unread(ctx, last)
			}
			if last = r.Err; errors.Is(last, fleet.ErrInvalid) {
				return last
			}
			program.Send(r)
		case now := <-clock.C:
			program.Send(screen.Tick(now))
		case <-ended:
			return nil
		case <-ctx.Done():
			return signaled(ctx)
		}
	}
}

// inLines prints each change on a line.
func (w *watch) inLines(ctx context.Context, readings <-chan screen.Reading) error {
	var last error
	var waited waitedLines
	for {
		var r screen.Reading
		var ok bool
		select {
		case r, ok = <-readings:
		case <-ctx.Done():
			return errors.Join(signaled(ctx), waited.print(w, true))
		}
		if !ok {
			return errors.Join(unread(ctx, last), waited.print(w, true))
		}
		if errors.Is(r.Err, fleet.ErrInvalid) {
			return r.Err
		}
		if err := w.print(r, last != nil); err != nil {
			return err
		}
		waited.last = r
		if err := waited.print(w, false); err != nil {
			return err
		}
		last = r.Err
	}
}

// print prints the events of a reading, and whether all locks can be read, if that has changed. failed means that the
// previous reading was incomplete.
func (w *watch) print(r screen.Reading, failed bool) error {
	for i := range r.Events {
		e := &r.Events[i]
		if err := w.line(changeOf(e), e.Sentence()); err != nil {
			return err
		}
	}
	switch {
	case r.Err != nil && !failed:
		reason := text.OneLine(r.Err.Error())
		return w.line(change{Time: r.Ended.UTC(), Event: readingFailed, Error: reason}, reason)
	case r.Err == nil && failed:
		return w.line(change{Time: r.Ended.UTC(), Event: readingAgain}, "all locks can be read")
	}
	return nil
}

// waitedLines prints the waiting time of groups each minute, and at the end, if it has changed.
type waitedLines struct {
	last screen.Reading
	next time.Time     // earliest time of the next line
	said time.Duration // total waiting time in the last line
}

const (
	mostGroups  = 10 // in a reading, and so in a line
	waitedEvery = time.Minute
)

func (l *waitedLines) print(w *watch, end bool) error {
	r := &l.last
	if l.next.IsZero() {
		l.next = r.Ended.Add(waitedEvery)
	}
	if !end && r.Ended.Before(l.next) {
		return nil
	}
	l.next = r.Ended.Add(waitedEvery)
	c := change{Time: r.Ended.UTC(), After: r.Since.UTC(), Event: groupsWaited}
	var sum time.Duration
	var words []string
	for _, g := range r.Groups {
		if sum += g.Waited; g.Waited > 0 {
			c.Groups = append(c.Groups,
				groupView{Group: g.Group, WaitedMS: g.Waited.Milliseconds(), Waiting: g.Waiting})
			words = append(words, text.Safe(g.Group)+" "+text.Span(g.Waited))
		}
	}
	if sum == l.said {
		return nil
	}
	l.said = sum
	return w.line(c, "since "+r.Since.Local().Format(time.TimeOnly)+": "+strings.Join(words, ", "))
}

func (w *watch) line(c change, sentence string) error {
	return w.app.print(fmt.Sprintf("%s  %-14s  %s  %s\n", c.Time.Local().Format("2006-01-02T15:04:05.000Z07:00"),
		c.Event, cmp.Or(text.Safe(c.Name), "-"), sentence), c)
}

// The events that aren't about a single lock. They are API, as those of package changes are.
const (
	// Some locks can't be read: see error. Until readingAgain their changes come late or not at all.
	readingFailed changes.What = "reading_failed"
	groupsWaited  changes.What = "waited" // waiting time since After, by group: see waitedLines
	// All locks can be read again. What changed in the meantime comes before this event.
	readingAgain changes.What = "reading_again"
)

// change is an event for watch --json. Its fields are API.
type change struct {
	Time time.Time `json:"time"` // when it was seen
	// After: the change happened after this time. Omitted: unknown.
	After time.Time `json:"after,omitzero"`
	// Event is held, acquired, hand_over, holders, gone, lease_over, wait_began, wait_ended, waited, reading_failed,
	// reading_again
	Event   changes.What `json:"event"`
	Name    string       `json:"name,omitempty"`    // of the lock
	Key     string       `json:"key,omitempty"`     // in Redis
	Kind    fleet.Kind   `json:"kind,omitempty"`    // of the lock
	Held    int          `json:"held"`              // number of holders now, or of permits held
	Waiting int          `json:"waiting"`           // number of waiters now
	Holders []holderView `json:"holders,omitempty"` // now, as ls --json prints them without --trace-url
	Before  []holderView `json:"before,omitempty"`  // at the previous reading that found the lock
	// MayHaveExpired: for gone and hand_over, the lease may have run out.
	MayHaveExpired bool        `json:"may_have_expired,omitempty"`
	Groups         []groupView `json:"groups,omitempty"` // for waited, the longest waiting time first
	Error          string      `json:"error,omitempty"`  // for reading_failed
}

// groupView is the waiting time for the locks of a group. Its fields are API.
type groupView struct {
	Group    string `json:"group"`     // "_other" for all groups beyond a limit
	WaitedMS int64  `json:"waited_ms"` // of all waiters together
	Waiting  int    `json:"waiting"`   // number of waiters now
}

// changeOf converts an event for --json.
func changeOf(e *changes.Event) change {
	l := e.Lock()
	return change{
		Time: e.At.UTC(), After: e.After.UTC(), Event: e.What, Name: l.Name, Key: l.Key, Kind: l.Kind,
		Held: e.Is.Held, Waiting: e.Is.Waiting, Holders: traceURL("").view(e.Is.Lock).Holders,
		Before: traceURL("").view(e.Was.Lock).Holders, MayHaveExpired: e.MayHaveExpired,
	}
}
