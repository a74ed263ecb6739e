package watchdog_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

const (
	ttl      = 30 * time.Second
	interval = 10 * time.Second
	margin   = 302 * time.Millisecond
	trust    = ttl - margin
)

// sleep lets fake time pass, and all that becomes due then happen: what callbacks wrote may be read afterwards.
func sleep(e *watchdog.Engine, d time.Duration) {
	e.Stats() // the race detector sees no order in fake time; it does in the engine's lock
	time.Sleep(d)
	synctest.Wait()
	e.Stats()
}

// call is what the fake server saw of one batch.
type call struct {
	at      time.Time
	node    string
	leases  int
	timeout time.Duration
}

// server stands in for Redis: it renews everything at once unless told otherwise.
type server struct {
	mu     sync.Mutex
	calls  []call
	answer func(l *watchdog.Lease) watchdog.Result           // per lease
	before func(ctx context.Context, b *watchdog.Batch) bool // per call; false: leave the results as they are
}

func (s *server) renew(ctx context.Context, b *watchdog.Batch) {
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	s.calls = append(s.calls, call{b.Sent, b.Node, len(b.Leases), time.Until(deadline)})
	before, answer := s.before, s.answer
	s.mu.Unlock()
	if before != nil && !before(ctx, b) {
		return
	}
	for i, l := range b.Leases {
		b.Results[i].Outcome = watchdog.Renewed
		if answer != nil {
			b.Results[i] = answer(l)
		}
	}
}

// take returns the calls since the last take, in the order of their times.
func (s *server) take() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	slices.SortStableFunc(calls, func(a, b call) int { return a.at.Compare(b.at) })
	return calls
}

func (s *server) set(before func(context.Context, *watchdog.Batch) bool, answer func(*watchdog.Lease) watchdog.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.answer = before, answer
}

// answers has every lease answered so.
func (s *server) answers(answer func(*watchdog.Lease) watchdog.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// down makes every call fail at once.
func (s *server) down() {
	s.set(func(context.Context, *watchdog.Batch) bool { return false }, nil)
}

// hung makes every call hang until its ctx ends.
func hung(ctx context.Context, _ *watchdog.Batch) bool {
	<-ctx.Done()
	return false
}

func (s *server) up() { s.set(nil, nil) }

// busiest is the largest number of calls in any span of that length.
func busiest(calls []call, span time.Duration) int {
	most, from := 0, 0
	for to := range calls {
		for calls[to].at.Sub(calls[from].at) >= span {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// gaps are the shortest and the longest time between calls.
func gaps(calls []call) (least, most time.Duration) {
	least = 1<<63 - 1
	for i := 1; i < len(calls); i++ {
		gap := calls[i].at.Sub(calls[i-1].at)
		least, most = min(least, gap), max(most, gap)
	}
	return least, most
}

// lock is a holder, as package lock has one: it embeds the lease.
type lock struct {
	watchdog.Lease
	mu       sync.Mutex
	renewals []watchdog.Renewal
	losses   []watchdog.Loss
	lostAt   time.Time
	alarms   []time.Time
	tally    *tally

	onRenewal func(watchdog.Renewal)
	onLost    func(watchdog.Loss) // in what Lost returns
	onAlarm   func(time.Time) time.Time
}

// tally sums up over many locks, which then keep no list of their own.
type tally struct {
	mu       sync.Mutex
	renewed  int
	failed   int
	lost     map[telemetry.LossCause]int
	latest   time.Duration // the longest between two confirmed renewals
	leastTTL time.Duration
}

func newTally() *tally { return &tally{lost: map[telemetry.LossCause]int{}, leastTTL: 1 << 62} }

func (l *lock) Renewal(r watchdog.Renewal) {
	if t := l.tally; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if r.Result.Outcome == watchdog.Renewed {
			t.renewed++
			t.latest = max(t.latest, r.Elapsed)
		} else {
			t.failed++
		}
		t.leastTTL = min(t.leastTTL, r.Remaining)
		return
	}
	l.mu.Lock()
	l.renewals = append(l.renewals, r)
	l.mu.Unlock()
	if l.onRenewal != nil {
		l.onRenewal(r)
	}
}

func (l *lock) Lost(loss watchdog.Loss) (tell func()) {
	l.mu.Lock()
	l.losses = append(l.losses, loss)
	l.lostAt = time.Now()
	l.mu.Unlock()
	if t := l.tally; t != nil {
		t.mu.Lock()
		t.lost[loss.Cause]++
		t.mu.Unlock()
	}
	if l.onLost == nil {
		return nil
	}
	return func() { l.onLost(loss) }
}

func (l *lock) Alarm(now time.Time) (next time.Time, tell func()) {
	l.mu.Lock()
	l.alarms = append(l.alarms, now)
	l.mu.Unlock()
	if l.onAlarm != nil {
		next = l.onAlarm(now)
	}
	return next, nil
}

func (l *lock) lossesNow() []watchdog.Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.losses)
}

// outcomes returns the outcomes of the renewals so far, each with the number of its attempt.
func (l *lock) outcomes() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := ""
	for _, r := range l.renewals {
		s += fmt.Sprintf("%s/%d ", r.Result.Outcome, r.Attempt)
	}
	return s
}

func start(t testing.TB, s *server, change ...func(*watchdog.Config)) *watchdog.Engine {
	t.Helper()
	cfg := watchdog.Config{
		BatchSize: watchdog.DefaultBatchSize, Renew: s.renew,
		Panicked: func(v any, stack []byte) { t.Errorf("panic: %v\n%s", v, stack) },
	}
	for _, c := range change {
		c(&cfg)
	}
	e := watchdog.New(cfg)
	t.Cleanup(e.Close)
	return e
}

func spec(l *lock) watchdog.Spec {
	return watchdog.Spec{TTL: ttl, Interval: interval, Margin: margin, Sent: time.Now(), Holder: l}
}

// watch has n locks watched now.
func watch(e *watchdog.Engine, n int, t *tally) []*lock {
	locks := make([]lock, n)
	all := make([]*lock, n)
	for i := range locks {
		all[i] = &locks[i]
		all[i].tally = t
		e.Watch(&all[i].Lease, spec(all[i]))
	}
	return all
}

func ceil(n, d int) int { return (n + d - 1) / d }

// allowed is how many calls a node with that many cohorts may make in 100 ms.
func allowed(cohorts int, every time.Duration) int {
	return ceil(cohorts*int(100*time.Millisecond), int(every)) + 1
}
