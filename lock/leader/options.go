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

// inspector is a lock that can tell who holds it.
type inspector interface {
	Inspect(ctx context.Context) (lock.Holder, error)
}

// OnElected is called when this process has been elected, with the fencing token of its term. fn starts at the same time.
func OnElected(f func(token int64)) Option { return func(c *config) { c.onElected = f } }

// OnDeposed is called when this process leads no more, once for each call of OnElected, also while fn still runs. The cause is nil when
// fn returned nil while it led; fn's error when it returned one; otherwise why fn's ctx ended: a *lock.LostError, a
// *lock.CanceledError or the cause of the ctx given to Run.
func OnDeposed(f func(cause error)) Option { return func(c *config) { c.onDeposed = f } }

// OnNewLeader is called with the client id of the leader (lock.WithClientID) when another client leads than the one it was called with last, this one
// included. Another client with the same id is another leader. It isn't called when nobody leads.
//
// A term of this process is told at once. To hear of others, Run asks Redis while it doesn't lead: when it has waited for 100 ms, 100 ms
// after each term of its own, and every WithInspectInterval. So another leader is told one interval after its election at most, while Redis answers, and
// one that led for less than that may be missed. Without OnNewLeader, Run asks nothing while it waits. The lock needs the method Inspect of a lock.Mutex.
func OnNewLeader(f func(clientID string)) Option { return func(c *config) { c.onNewLeader = f } }

// WithInspectInterval sets how often OnNewLeader looks who leads: one small read for each process that waits. Each
// interval is shortened at random by up to a tenth. The default is DefaultInspectInterval.
func WithInspectInterval(d time.Duration) Option { return func(c *config) { c.interval = d } }

// WithBackoff sets the pause before the next campaign, after a campaign that failed and after a term: shortest at first, twice as long after each failure, and
// longest at most. Each pause is shortened at random by up to a half. A term that lasted for longest or more makes
// it shortest again; a shorter one counts as a failure. The defaults are DefaultMinBackoff and DefaultMaxBackoff.
func WithBackoff(shortest, longest time.Duration) Option {
	return func(c *config) { c.minBackoff, c.maxBackoff = shortest, longest }
}

// WithLogger sets where Run logs: elections and their ends, errors of fn, and campaigns that fail, of which it logs one a minute at most. The
// default, and nil, is slog.Default.
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
		c.fail("WithBackoff(%v, %v): the first must be positive, and the second not be shorter", c.minBackoff, c.maxBackoff)
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
