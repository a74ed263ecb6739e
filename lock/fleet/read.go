package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	modeField = "mode" // of a read-write lock
	mostMarks = 100    // of a holder that entered more often, only the last marks are read, as in rw.lua
)

// noEnd is the remaining time of a lease that doesn't expire, as script.Millis returns it.
const noEnd = -time.Millisecond

// batch reads some keys in pipelines.
type batch struct {
	*Reader
	node *redis.Client // that should have the keys
	now  time.Time     // by the server's clock
	// all: return a Lock for each key, and read all keys that may belong to it. Otherwise only held and awaited locks.
	all   bool
	moved bool // some keys have left the node

	pipe     redis.Pipeliner // the next commands
	handlers []func()        // of their replies
	later    []func()        // each queues more commands, once there is room in a pipeline
}

// then calls handle when all commands in b.pipe have their replies. handle may queue more commands.
func (b *batch) then(handle func()) { b.handlers = append(b.handlers, handle) }

// run sends all commands, and handles their replies.
func (b *batch) run(ctx context.Context) error {
	for {
		for len(b.later) > 0 && b.pipe.Len() < readCount {
			b.later[0]()
			b.later = b.later[1:]
		}
		handlers := b.handlers
		if b.handlers = nil; len(handlers) == 0 {
			return nil
		}
		moved, err := b.exec(ctx, b.pipe)
		if err != nil {
			return err
		}
		b.moved = b.moved || moved
		for _, handle := range handlers {
			handle()
		}
	}
}

// reading is a Lock that is being read.
type reading struct {
	Lock
	err     error // why it can't be read, or ErrNotALock
	marked  bool  // its wait set may have clients
	inQueue bool  // its queue, that of a FairMutex, may have waiters
}

// refusedError says that the server refused to read some keys.
type refusedError struct {
	keys  int
	first string // the lock's name, so that the debug page can redact it
	err   error
}

func (e *refusedError) Error() string {
	if e.keys == 1 {
		return e.err.Error()
	}
	return fmt.Sprintf("%d keys can't be read, such as %q: %v", e.keys, e.first, e.err)
}

func (e *refusedError) Unwrap() error { return e.err }

// reads is how to read a lock: a method of batch that asks for what is at the lock's key.
type reads func(*batch, context.Context, *reading)

// read reads the locks at the keys from the node that should have them. A key at which the first of hows finds no lock
// is read by the next. If the error is a *refusedError for some keys, the locks of the others are returned too. With
// all, a free lock is returned too, and a key that holds no lock fails the call. Otherwise both are omitted.
func (r *Reader) read(
	ctx context.Context, node *redis.Client, keys []string, all bool, hows ...reads,
) ([]Lock, error) {
	now, err := node.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	b := &batch{Reader: r, node: node, now: now, all: all, pipe: node.Pipeline()}
	list := make([]*reading, len(keys))
	for i, key := range keys {
		list[i] = &reading{Lock: Lock{Name: strings.TrimPrefix(key, r.prefix), Key: key, Kind: Mutex}}
	}
	for i, how := range hows {
		for _, one := range list {
			if i == 0 || errors.Is(one.err, ErrNotALock) {
				how(b, ctx, one)
			}
		}
		if err := b.run(ctx); err != nil {
			return nil, err
		}
	}
	var locks []Lock
	refused := &refusedError{}
	for _, one := range list {
		switch {
		case one.err == nil:
			if all || one.Held > 0 || one.Waiting > 0 {
				one.sortWaiters()
				locks = append(locks, one.Lock)
			}
		case !errors.Is(one.err, ErrNotALock):
			if refused.keys++; refused.keys == 1 {
				refused.first, refused.err = one.Name, one.err
			}
		case all:
			return nil, one.err
		}
	}
	if refused.keys > 0 {
		return locks, refused
	}
	return locks, nil
}

// otherType reports whether a command failed because its key is of another type.
func otherType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// failed stores the first error of the commands. It reports whether one.err is set.
func (one *reading) failed(cmds ...redis.Cmder) bool {
	for _, cmd := range cmds {
		err := cmd.Err()
		switch {
		case one.err != nil, err == nil || errors.Is(err, redis.Nil):
		case otherType(err):
			one.alien("it is of another type")
		default:
			one.err = err
		}
	}
	return one.err != nil
}

// alien stores that a key holds no lock.
func (one *reading) alien(why string) {
	one.err = fmt.Errorf("%w: %q: %s", ErrNotALock, one.Key, why)
}

// hash reads a lock that is a hash. Unless b.all, it reads the fields only of a hash that may be a lock: hashes of
// applications can be large.
func (b *batch) hash(ctx context.Context, one *reading) {
	size, marks := b.pipe.HLen(ctx, one.Key), b.pipe.HMGet(ctx, one.Key, script.MetaField, modeField)
	b.then(func() {
		if one.failed(size, marks) {
			return
		}
		n, meta, mode := size.Val(), marks.Val()[0], marks.Val()[1]
		switch {
		case n == 0:
			b.readWaiters(ctx, one)
			return
		case isMode(mode):
			one.Kind = RW
		// A mutex of lockdog has one field beside its owner, one of Redisson none.
		case !b.all && (n > 2 || n == 2 && meta == nil):
			one.alien(otherThings)
			return
		}
		b.fields(ctx, one, int(n))
	})
}

// fields reads the holders of a lock, whose hash has size fields, and then its waiters.
func (b *batch) fields(ctx context.Context, one *reading, size int) {
	scan := b.pipe.HScan(ctx, one.Key, 0, "", mostRead)
	left := askPTTL(ctx, b.pipe, one.Key) // after the fields, so that -2 shows that the key is gone
	b.then(func() {
		if one.failed(scan, left) {
			return
		}
		fields, cursor := scan.Val()
		if len(fields) > 0 && left.Val() != -2 { // otherwise it was deleted in the meantime
			if cursor == 0 { // all fields were read, later than the mode: parse finds out whether it is still an RW
				one.Kind = Mutex
			}
			holders, meta := one.parse(fields, script.Millis(left.Val()))
			switch {
			case one.err != nil:
				return
			case one.Kind == RW:
				if cursor != 0 { // readers whose fields weren't read count as alive
					one.Held = max(size-len(fields)/2, 0)
				}
				for _, h := range holders {
					b.later = append(b.later, func() { b.sharer(ctx, one, h) })
				}
			default:
				holders[0].said(meta)
				one.add(holders[0])
				one.marked, one.inQueue = script.ParseMarks(meta)
			}
		}
		b.readWaiters(ctx, one)
	})
}

const otherThings = "a hash of other things"

func isMode(text any) bool { return text == "read" || text == "write" }

// parse returns the holders in the fields of a hash, and the value of script.MetaField. What it rejects, the scripts
// reject too: see foreign.lua.
func (one *reading) parse(fields []string, left time.Duration) (holders []Holder, meta string) {
	// strange is an owner that IsOwner rejects, which is valid only beside MetaField. noted: that field is there.
	strange, noted := "", false
	for i := 0; i+1 < len(fields); i += 2 {
		field, text := fields[i], fields[i+1]
		switch {
		case field == modeField && isMode(text):
			one.Kind = RW
			continue
		case field == script.MetaField:
			meta, noted = text, true
			continue
		case !script.IsCount(text) || field == modeField:
			one.alien(fmt.Sprintf("its field %.64q is no owner", field))
			return nil, ""
		}
		if !script.IsOwner(field) {
			strange = field
		}
		owner, released := script.CutReleased(field)
		count, _ := strconv.Atoi(text)
		client := script.ClientIDOf(owner)
		holders = append(holders, Holder{
			Owner: owner, ClientID: client, Redisson: client == "" && strange != field, Count: count, Remaining: left,
			Released: released,
		})
	}
	switch {
	case len(holders) == 0, one.Kind != RW && len(holders) > 1, one.Kind == RW && noted:
		one.alien(otherThings)
	case strange != "" && !noted:
		one.alien(fmt.Sprintf("its field %.64q is no owner", strange))
	}
	return holders, meta
}

// said adds what a holder of lockdog wrote into script.MetaField or, for an RW, into its mark. A token is the time of
// the grant, unless the server's clock was behind an earlier token.
func (h *Holder) said(meta string) {
	token, traceparent := script.ParseMeta(meta)
	h.Token = token
	if token > script.LeastTime {
		h.Since = time.UnixMicro(token)
	}
	h.TraceID, h.SpanID = parseTrace(traceparent)
}

func parseTrace(traceparent string) (traceID, spanID string) {
	if sc, ok := telemetry.ParseTraceparent(traceparent); ok {
		return sc.TraceID().String(), sc.SpanID().String()
	}
	return "", ""
}

// askPTTL queues a PTTL with a result in ms, for script.Millis: the Duration that go-redis makes of it may overflow.
func askPTTL(ctx context.Context, pipe redis.Pipeliner, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, "pttl", key)
	_ = pipe.Process(ctx, cmd)
	return cmd
}

// longer returns the longer of two remaining times.
func longer(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return noEnd
	}
	return max(a, b)
}

// sharer reads the marks of a possible holder of a read-write lock: one key for each time that it entered. It holds the
// lock if one of these keys is left. Redisson's writers have no marks, and hold the lock as long as its key exists.
func (b *batch) sharer(ctx context.Context, one *reading, h Holder) {
	h.Mode = "read"
	if strings.HasSuffix(h.Owner, script.WriteSuffix) {
		h.Mode = "write"
	}
	if h.Redisson && h.Mode == "write" {
		one.add(h)
		return
	}
	meta := b.pipe.Get(ctx, script.MarkKey(one.Key, h.Owner))
	var marks []*redis.IntCmd
	for n := h.Count; n >= max(h.Count-mostMarks+1, 1); n-- {
		marks = append(marks, askPTTL(ctx, b.pipe, script.MarkKeyOf(one.Key, h.Owner, n)))
	}
	b.then(func() {
		alive := false
		h.Remaining = 0
		for _, left := range marks {
			if !one.failed(left) && left.Val() != -2 {
				alive, h.Remaining = true, longer(h.Remaining, script.Millis(left.Val()))
			}
		}
		if !otherType(meta.Err()) {
			one.failed(meta)
		}
		if !alive { // its lease has run out
			return
		}
		if !h.Redisson {
			h.said(meta.Val())
		}
		one.add(h)
	})
}

func (one *reading) add(h Holder) {
	if one.Mode != "write" {
		one.Mode = h.Mode
	}
	one.Remaining = longer(one.Remaining, h.Remaining)
	one.Held++
	switch {
	case len(one.Holders) < Most:
		one.Holders = append(one.Holders, h)
	case h.Mode == "write": // a writer is more important than one reader more
		one.Holders[Most-1] = h
	}
}

// number reads a semaphore, or another number.
func (b *batch) number(ctx context.Context, one *reading) {
	key, ms := script.PermitsKey(one.Key), strconv.FormatInt(b.now.UnixMilli(), 10)
	after := "(" + ms
	number, first := b.pipe.Get(ctx, one.Key), b.pipe.ZRange(ctx, key, 0, 0)
	over, held := b.pipe.ZCount(ctx, key, "-inf", ms), b.pipe.ZCount(ctx, key, after, "+inf")
	next := b.pipe.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: after, Max: "+inf", Count: 1})
	b.then(func() {
		before := one.err
		one.err = nil
		left, _ := strconv.Atoi(number.Val())
		switch {
		case one.failed(number, over, held, first, next):
		// Not a number, or no key. Locks derives the semaphore's key from a permits key that it has found. The permits
		// key "{x}:timeout" may be that of "x" or of "{x}": Locks tries both, and one usually doesn't exist. Neither does
		// if the permits key is another program's sorted set.
		case !script.IsNumber(number.Val()):
			one.alien("it is no number")
		case len(first.Val()) == 0:
			one.Kind, one.Available = Number, left
		case len(first.Val()[0]) != permitBytes:
			one.alien("what is beside it are no permits")
		default:
			one.Kind, one.Remaining = Semaphore, noEnd
			one.Held, one.Available = int(held.Val()), left+int(over.Val())
			if z := next.Val(); len(z) > 0 && z[0].Score < noLease {
				one.Remaining = script.Millis(int64(z[0].Score) - b.now.UnixMilli())
			}
		}
		if before != nil && errors.Is(one.err, ErrNotALock) { // the first error is more specific
			one.err = before
		}
	})
}

const (
	permitBytes = 16   // length of a permit's name
	noLease     = 1e14 // ms, later than any real time: Redisson's permits without a lease end after it
)
