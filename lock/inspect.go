package lock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// Holder says who holds a lock.
type Holder struct {
	Held      bool          // if it isn't held, all other fields are zero
	Owner     string        // as Lease.Owner for a lockdog client; of several readers the one with the longest lease
	ClientID  string        // of the lockdog client that holds it, see WithClientID; "" for a Redisson holder
	Count     int           // how often a Redisson holder has entered; 1 for a lockdog holder
	Remaining time.Duration // how long Owner has the lock unless renewed, takeover delay included; negative: no expiry
	Token     int64         // 0 if the holder isn't a lockdog client
	TraceID   string        // of the trace in which the holder took it, "" if unknown
	Mode      string        // of an RWMutex: "write", or "read"
	Readers   int           // of an RWMutex: how many hold it for reading, also while the writer holds it
	Released  bool          // it was released, and WithMinHold keeps it taken for Remaining
}

// inspect implements Inspect.
func (lk *lock) inspect(ctx context.Context) (h Holder, err error) {
	err = lk.call(ctx, "inspect", func() error {
		r, err := lk.c.ops.inspect(ctx, lk)
		h = Holder{
			r.Held, r.Owner, script.ClientIDOf(r.Owner), r.Count, r.Remaining, r.Token,
			traceID(r.Traceparent), r.Mode, r.Readers, r.Released,
		}
		return err
	})
	return h, err
}

// forceUnlock implements ForceUnlock. caller is the function of the program that called it.
func (lk *lock) forceUnlock(ctx context.Context, caller string) (was bool, err error) {
	err = lk.call(ctx, "force unlock", func() (err error) {
		ctx, f := lk.c.rec.StartForce(ctx, &lk.tel)
		var owners []string
		was, owners, err = lk.c.ops.force(ctx, lk)
		kind := redisfail.Classify(err).Kind
		if errors.Is(err, context.Canceled) {
			kind = telemetry.ErrorOther
		}
		f.End(was, owners, lk.c.cfg.id, caller, kind, lk.wrap("force unlock", err))
		lk.c.waits.wake(lk.key)
		return err
	})
	return was, err
}

// callerOf returns from where in the program this package was called: "pkg.Func (file.go:42)".
func callerOf() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		if !more || !strings.HasPrefix(f.Function, ownPackage) {
			return fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), filepath.Base(f.File), f.Line)
		}
	}
}

// ownPackage begins the names of this package's functions.
const ownPackage = "github.com/lockdog/lockdog/lock."

// inspectEach inspects all locks at the same time. It returns the holders, with the results of nameOf as keys, and one
// error per lock; nil: it was inspected. A lock with an error isn't in the map.
func inspectEach(ctx context.Context, locks []lock, nameOf func(*lock) string) (map[string]Holder, []error) {
	holders, errs := make([]Holder, len(locks)), make([]error, len(locks))
	eachAtOnce(locks, func(i int) { holders[i], errs[i] = locks[i].inspect(ctx) })
	found := make(map[string]Holder, len(locks))
	for i := range locks {
		if errs[i] == nil {
			found[nameOf(&locks[i])] = holders[i]
		}
	}
	return found, errs
}

// forceUnlockEach unlocks all locks at the same time. It reports whether any was held, and returns one error per lock;
// nil: it was unlocked, or was free.
func forceUnlockEach(ctx context.Context, locks []lock, caller string) (bool, []error) {
	were, errs := make([]bool, len(locks)), make([]error, len(locks))
	eachAtOnce(locks, func(i int) { were[i], errs[i] = locks[i].forceUnlock(ctx, caller) })
	return slices.Contains(were, true), errs
}

func eachAtOnce(locks []lock, f func(i int)) {
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// joinAtNodes joins the errors of the locks, each with its node.
func joinAtNodes(locks []lock, errs []error) error {
	for i, err := range errs {
		if err != nil {
			errs[i] = atNode(locks[i].node(), err)
		}
	}
	return errors.Join(errs...)
}
