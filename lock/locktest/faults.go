package locktest

import (
	"cmp"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// ErrReplyLost is for FailAcquires, FailReleases and FailRenewals: the server does what it is asked to, and the client never gets the
// reply. An error that wraps it does the same.
var ErrReplyLost = errors.New("locktest: the reply was lost")

// ReplyError is an error reply of Redis, by which it refuses a call: ReplyError("LOADING Redis is loading the dataset in memory").
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (ReplyError) RedisError() {}

// errTimeout is what go-redis returns when the reply hasn't arrived within the ReadTimeout.
var errTimeout error = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}

// FailAcquires makes every acquire of every client fail with err, until it is called with nil. See the package documentation for
// what err may be.
//
// An acquire is each request for a lock, or for several names of a Multi: of TryLock, Lock and Do of every kind of lock,
// of TryAcquire and Acquire of an UnleasedSemaphore, and of Latch.Wait. A Quorum has a server for each node, and each
// fails by itself. Joining a lease that this client already has (lock.WithReentrancy) is no request, and works.
func (s *Server) FailAcquires(err error) { s.faults.fail(acquire, err) }

// FailReleases makes every release of every client fail with err, until it is called with nil. The lock stays held, until its lease
// runs out in Redis; with ErrReplyLost it is released. See the package documentation for what err may be.
//
// A release is each request to give something back: of Lease.Release and Do of every kind of lock, of Release and
// AddPermits of a semaphore, and of Latch.CountDown. lockdog sends releases itself, too, where the reply to an acquire
// was lost.
//
// A failing Lease.Release takes until its ctx ends, or else what is left of the lease. Outside a bubble, limit one of the two.
func (s *Server) FailReleases(err error) { s.faults.fail(release, err) }

// FailRenewals makes every renewal of every client fail with err, until it is called with nil. Acquires and releases
// still work. Leases that are not renewed before their Deadline are lost with lock.CauseUnreachable.
func (s *Server) FailRenewals(err error) { s.faults.fail(renewal, err) }

// DelayAcquires makes every acquire (see FailAcquires) of every client reach the server d later than it is sent, until it is called with 0. A
// caller need not wait for that: it can leave when its ctx ends. What the server grants then is given back.
//
// d is fake time in a bubble. With FailAcquires, the error takes as long. A client waits five seconds for a reply, the default ReadTimeout
// of go-redis: with a d as long as that it gets none, and the server nothing. TryLock waits no longer than that itself.
func (s *Server) DelayAcquires(d time.Duration) { s.faults.delay(acquire, d) }

// DelayReleases is the same for every release (see FailReleases).
func (s *Server) DelayReleases(d time.Duration) { s.faults.delay(release, d) }

// operation is what a call is for.
type operation int

const (
	other operation = iota
	acquire
	release
	renewal
	operations
)

// operationsBy are those of the scripts that aren't for others, by what a call may have in place of a script.
var operationsBy = func() map[any]operation {
	by := make(map[any]operation)
	for op, scripts := range map[operation][]*backend.Script{
		acquire: {
			script.Acquire.Script, script.FairAcquire.Script, script.WriteAcquire.Script, script.ReadAcquire.Script,
			script.SemaphoreAcquire.Script, script.UnleasedAcquire.Script, script.LatchWait.Script, script.MultiAcquire,
		},
		release: {
			script.Release.Script, script.Retain.Script, script.HandOver.Script, script.FairRelease.Script,
			script.WriteRelease.Script, script.ReadRelease.Script, script.SemaphoreRelease.Script,
			script.UnleasedUndo.Script, script.SemaphoreAdd.Script, script.LatchCountDown.Script, script.MultiRelease,
		},
		renewal: {script.Renew},
	} {
		for _, s := range scripts {
			by[s.SHA], by[s.Source] = op, op
		}
	}
	return by
}()

// fault is what happens to a call on its way.
type fault struct {
	err   error
	delay time.Duration
}

// overNetwork is an error as go-redis returns it: what isn't a reply, nor go-redis's own, came of a connection that broke.
func overNetwork(err error) error {
	if err == nil || !redisfail.Classify(err).Unclear || redisfail.IsUnavailable(err) {
		return err
	}
	return &net.OpError{Op: "read", Net: "tcp", Err: err}
}

// faults are the faults of all calls.
type faults struct {
	mu sync.Mutex
	of [operations]fault
}

func (f *faults) fail(op operation, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[op].err = overNetwork(err)
}

func (f *faults) delay(op operation, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[op].delay = d
}

// at returns the fault of a command that is sent now.
func (f *faults) at(cmd redis.Cmder, timeout time.Duration) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	acquires, releases := f.of[acquire] != (fault{}), f.of[release] != (fault{})
	switch {
	case script.HandOver.IsRunBy(cmd) && acquires:
		// It would acquire, too, for the next waiter. As one that came too late it is followed by a plain release, and the waiter asks itself.
		return fault{err: redisfail.ErrLate}
	case script.Batch.IsRunBy(cmd) && (acquires || releases): // then its calls are sent apart
		return fault{err: ReplyError("ERR locktest: one by one")}
	}
	var at fault
	if args := cmd.Args(); len(args) > 1 {
		at = f.of[operationsBy[args[1]]]
	}
	switch {
	case cmd.Name() == "eval": // the server didn't know the script, and was asked after a delay
		at.delay = 0
	case at.delay >= timeout:
		at = fault{cmp.Or(at.err, errTimeout), timeout}
	}
	return at
}

// tap is on a client's way to the server.
func (s *Server) tap(timeout time.Duration) fakeredis.Tap {
	return fakeredis.Tap{
		Up: func(cmd redis.Cmder) error {
			f := s.faults.at(cmd, timeout)
			time.Sleep(f.delay)
			switch {
			case f.err != nil && !errors.Is(f.err, ErrReplyLost):
				return f.err
			case script.Renew.IsRunBy(cmd):
				s.cut(cmd)
			case script.Force.IsRunBy(cmd), script.RWForce.IsRunBy(cmd):
				for _, h := range s.held(cmd.Args()[3].(string)) { // its first key
					s.listens(h.owner)
				}
			}
			return nil
		},
		Down: func(cmd redis.Cmder) error {
			f := s.faults.at(cmd, timeout)
			if errors.Is(f.err, ErrReplyLost) && !redisfail.IsNoScript(cmd.Err()) {
				return f.err
			}
			return nil
		},
	}
}
