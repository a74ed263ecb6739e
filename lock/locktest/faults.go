package locktest

import (
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

// ErrReplyLost is for FailAcquires, FailReleases and FailRenewals: the server executes the call, but the client never
// gets the reply. An error that wraps it has the same effect.
var ErrReplyLost = errors.New("locktest: the reply was lost")

// ReplyError is an error reply with which Redis rejects a call: ReplyError("LOADING Redis is loading the dataset in
// memory").
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (ReplyError) RedisError() {}

// errTimeout is what go-redis returns when the reply hasn't arrived within the ReadTimeout.
var errTimeout error = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}

// FailAcquires makes every acquire of every client fail with err, until it is called with nil. See the package
// documentation for what err may be.
//
// An acquire is each request for a lock, or for several names of a Multi: by TryLock, Lock, TryDo and Do of every kind
// of lock, by TryAcquire and Acquire of an UnleasedSemaphore, and by Latch.Wait. For a Quorum, each node has its own
// Server, which fails separately. Joining a lease that this client already has (lock.WithReentrancy) sends no request,
// so it works. So does a wait that another client's release ends by granting the lock to the waiter.
func (s *Server) FailAcquires(err error) { s.faults.fail(acquire, err) }

// FailReleases makes every release of every client fail with err, until it is called with nil. Unless that call comes
// before, the lock stays held until its lease runs out in Redis; with ErrReplyLost it is released. See the package
// documentation for what err may be.
//
// A release is each request to give something back: by Lease.Release and Do of every kind of lock, by Release and
// AddPermits of a semaphore, and by Latch.CountDown. lockdog itself also sends releases after the reply to an acquire
// was lost.
//
// Unless Redis rejects it for good, a failing Lease.Release retries until its ctx ends or the lease runs out. Outside a
// bubble, make one of the two short.
func (s *Server) FailReleases(err error) { s.faults.fail(release, err) }

// FailRenewals makes every renewal of every client fail with err, until it is called with nil. Acquires and releases
// still work. Leases that aren't renewed before their Deadline are lost with lock.CauseUnreachable.
func (s *Server) FailRenewals(err error) { s.faults.fail(renewal, err) }

// DelayAcquires makes every acquire (see FailAcquires) of every client reach the server d after it is sent, until it is
// called with 0. The caller doesn't have to wait for d: it returns when its ctx ends. If the server grants the lock
// later, the client releases it.
//
// d is fake time in a bubble. With FailAcquires, the error comes after d too. The client's ReadTimeout is the default
// of go-redis, five seconds. If d is that long or longer, the client gets a timeout, and the server never gets the
// request. TryLock itself waits no longer than that; with lock.WithWait, until one second after WithWait is over.
func (s *Server) DelayAcquires(d time.Duration) { s.faults.delay(acquire, d) }

// DelayReleases does the same for every release (see FailReleases).
func (s *Server) DelayReleases(d time.Duration) { s.faults.delay(release, d) }

// operation is the purpose of a call, for faults.
type operation int

const (
	other operation = iota
	acquire
	release
	renewal
	operations
)

// operationsBy maps the SHA and the source of a script, either of which a call may have, to its operation.
var operationsBy = func() map[any]operation {
	by := make(map[any]operation)
	for op, scripts := range map[operation][]*backend.Script{
		acquire: {
			script.Acquire.Script, script.FairAcquire.Script, script.WriteAcquire.Script, script.ReadAcquire.Script,
			script.SemaphoreAcquire.Script, script.UnleasedAcquire.Script, script.LatchWait.Script, script.MultiAcquire,
		},
		release: {
			script.Release.Script, script.Retain.Script, script.HandOver.Script,
			script.FairRelease.Script, script.FairRetain.Script,
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

// fault is what happens to calls of one operation.
type fault struct {
	err   error
	delay time.Duration
}

// overNetwork wraps an error as go-redis does for a broken connection. It doesn't wrap an error that go-redis returns
// unwrapped, such as a reply or io.EOF.
func overNetwork(err error) error {
	if err == nil || !redisfail.Classify(err).Unclear || redisfail.IsUnavailable(err) {
		return err
	}
	return &net.OpError{Op: "read", Net: "tcp", Err: err}
}

// faults has the current fault of each operation.
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

// at returns the fault for a command that is sent now.
func (f *faults) at(cmd redis.Cmder, timeout time.Duration) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	acquires, releases := f.of[acquire] != (fault{}), f.of[release] != (fault{})
	switch {
	case script.HandOver.IsRunBy(cmd) && acquires:
		// A hand-over acquires too, for the next waiter. ErrLate makes the client send a plain release instead, and
		// the waiter acquires by itself.
		return fault{err: redisfail.ErrLate}
	case script.Batch.IsRunBy(cmd) && (acquires || releases): // this error makes the client send its calls one by one
		return fault{err: ReplyError("ERR locktest: one by one")}
	}
	var at fault
	if args := cmd.Args(); len(args) > 1 {
		at = f.of[operationsBy[args[1]]]
	}
	switch {
	case cmd.Name() == "eval": // it repeats an EVALSHA that failed with NOSCRIPT, which was delayed already
		at.delay = 0
	case at.delay >= timeout:
		if at.err == nil || errors.Is(at.err, ErrReplyLost) {
			at.err = errTimeout
		}
		at.delay = timeout
	}
	return at
}

// tap returns the hooks between a client and the server.
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
				for _, h := range s.held(cmd.Args()[3].(string)) { // args[3] is the first key
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
