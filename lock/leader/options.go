package leader

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The defaults of options.
const (
	DefaultMinBackoff      = time.Second      // of WithBackoff
	DefaultMaxBackoff      = 10 * time.Second // of WithBackoff
	DefaultInspectInterval = 5 * time.Second  // of WithInspectInterval
)

// Option configures an Elector.
type Option func(*config)

type config struct {
	onElected   func(token int64)
	onDeposed   func(cause error)
	onNewLeader func(clientID string)
	minBackoff  time.Duration
	maxBackoff  time.Duration
	interval    time.Duration
	logger      *slog.Logger
	inspector   inspector
	err         error
}

// inspector is a lock that can say who holds it.
type inspector interface {
	Inspect(ctx context.Context) (lock.Holder, error)
}

// OnElected sets a function that is called when this process has been elected, with the fencing token of its term. The
// function given to Run, fn, doesn't wait for this call: it starts at the same time.
func OnElected(f func(token int64)) Option { return func(c *config) { c.onElected = f } }

// OnDeposed sets a function that is called when this process no longer leads, once for each call of OnElected, even
// while fn is still running. If the process led until fn ended, the cause is what fn returned, an error or nil, or it
// says that fn panicked or called runtime.Goexit. Otherwise it is the cause of fn's ctx: a *lock.LostError, a
// *lock.CanceledError, or the cause of the ctx given to Run. If fn has resigned, the cause is lock.ErrReleased, or what
// fn returned right after.
func OnDeposed(f func(cause error)) Option { return func(c *config) { c.onDeposed = f } }

// OnNewLeader sets a function that is called with the client id of the leader (lock.WithClientID) when the leader is
// another client than in the previous call. That may be this client. Another client with the same id counts as another
// leader. It isn't called when nobody leads.
//
// A term of this process is reported at once. To learn of other leaders, Run asks Redis while this process doesn't
// lead: 100 ms after its start, 100 ms after each of its terms, and every WithInspectInterval. So another leader is
// reported at most one interval after its election, while Redis answers. A leader may be missed if its term was shorter
// than the interval. Without OnNewLeader, Run doesn't ask. The lock must have the method Inspect, as a lock.Mutex does.
func OnNewLeader(f func(clientID string)) Option { return func(c *config) { c.onNewLeader = f } }

// WithInspectInterval sets how often Run asks who leads, for OnNewLeader: one small read per waiting process. Each
// interval is shortened at random by up to a tenth. The default is DefaultInspectInterval.
func WithInspectInterval(d time.Duration) Option { return func(c *config) { c.interval = d } }

// WithBackoff sets the pause before the next campaign, after a failed campaign and after a term. The first pause lasts
// for the duration shortest; each failure doubles it, up to the duration longest. Each pause is then shortened at
// random by up to a half. A term that was shorter than longest counts as a failure. After any other term the pause
// begins with shortest again. The defaults are DefaultMinBackoff and DefaultMaxBackoff.
func WithBackoff(shortest, longest time.Duration) Option {
	return func(c *config) { c.minBackoff, c.maxBackoff = shortest, longest }
}

// WithLogger sets the logger of Run: for elections and their ends, errors of fn, and failed campaigns (at most one
// record a minute). nil means slog.Default, which is also the default.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

func newConfig(m lock.Locker, opts []Option) config {
	c := config{minBackoff: DefaultMinBackoff, maxBackoff: DefaultMaxBackoff, interval: DefaultInspectInterval}
	for _, o := range opts {
		if o == nil {
			c.fail("an option is nil")
			continue
		}
		o(&c)
	}
	c.inspector, _ = m.(inspector)
	switch {
	case m == nil:
		c.fail("the lock is nil")
	case c.minBackoff <= 0 || c.maxBackoff < c.minBackoff:
		c.fail("WithBackoff(%v, %v): the first must be positive, and the second not be shorter",
			c.minBackoff, c.maxBackoff)
	case c.interval <= 0:
		c.fail("WithInspectInterval(%v): must be positive", c.interval)
	case c.onNewLeader != nil && c.inspector == nil:
		c.fail("OnNewLeader: a %T has no Inspect, so nobody can tell who holds it", m)
	}
	return c
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: leader: %s", lock.ErrInvalid, fmt.Sprintf(format, args...))
	}
}

func (c *config) log() *slog.Logger {
	if c.logger == nil {
		return slog.Default()
	}
	return c.logger
}
