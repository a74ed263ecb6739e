package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	modeField = "mode" // of a read-write lock
	mostMarks = 100    // of a holder that entered more often only the last marks are read, as in rw.lua
)

// noEnd is the remaining time of a lease that doesn't expire.
const noEnd = -time.Millisecond

// batch reads some keys in pipelines.
type batch struct {
	*Reader
	node *redis.Client // that should have the keys
	now  time.Time     // by the server's clock
	// all: return a Lock for each key, and read all keys that may belong to it. Otherwise only held and awaited locks.
	all   bool
	moved bool // some keys have left the node
	keys  []*reading
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

// read reads the locks at the keys from the node that should have them; how is a method of batch. If the error is a
// *refusedError for some keys, the locks of the others are returned too. With all, every key gives a Lock or an error.
func (r *Reader) read(
	ctx context.Context, node *redis.Client, keys []string, how func(*batch, context.Context) error, all bool,
) ([]Lock, error) {
	now, err := node.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	b := &batch{Reader: r, node: node, now: now, all: all}
	for _, key := range keys {
		b.keys = append(b.keys, &reading{Lock: Lock{Name: strings.TrimPrefix(key, r.prefix), Key: key, Kind: Mutex}})
	}
	if err := how(b, ctx); err != nil {
		return nil, err
	}
	var locks []Lock
	refused := &refusedError{}
	for _, one := range b.keys {
		switch {
		case one.err == nil:
			if all || one.Held > 0 || one.Waiting > 0 {
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

func (b *batch) exec(ctx context.Context, pipe redis.Pipeliner) error {
	moved, err := b.Reader.exec(ctx, pipe)
	b.moved = b.moved || moved
	return err
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

// still returns the keys without an error so far.
func (b *batch) still() []*reading {
	return slices.DeleteFunc(slices.Clone(b.keys), func(one *reading) bool { return one.err != nil })
}

func (b *batch) locks(ctx context.Context) error {
	if err := b.hashes(ctx); err != nil {
		return err
	}
	return b.numbers(ctx, slices.DeleteFunc(slices.Clone(b.keys), func(one *reading) bool {
		return !errors.Is(one.err, ErrNotALock)
	}))
}

// semaphores reads the semaphores whose numbers are at the keys.
func (b *batch) semaphores(ctx context.Context) error { return b.numbers(ctx, b.keys) }

// hashes reads the locks that are hashes. Unless b.all, it reads the fields only of hashes that may be locks: those of
// applications can be large.
func (b *batch) hashes(ctx context.Context) error {
	type asked struct {
		*reading
		size   *redis.IntCmd
		marks  *redis.SliceCmd
		fields *redis.ScanCmd
		left   *redis.IntCmd // ms; after the fields, so that -2 shows that the key is gone
	}
	var all, held []asked
	pipe := b.node.Pipeline()
	for _, one := range b.keys {
		all = append(all, asked{
			reading: one, size: pipe.HLen(ctx, one.Key), marks: pipe.HMGet(ctx, one.Key, script.MetaField, modeField),
		})
	}
	if err := b.exec(ctx, pipe); err != nil {
		return err
	}
	for _, a := range all {
		if a.failed(a.size, a.marks) || a.size.Val() == 0 {
			continue
		}
		switch marks := a.marks.Val(); {
		case isMode(marks[1]):
			a.Kind = RW
		// A mutex of lockdog has one field beside its owner, one of Redisson none.
		case !b.all && (a.size.Val() > 2 || a.size.Val() == 2 && marks[0] == nil):
			a.alien(otherThings)
			continue
		}
		a.fields, a.left = pipe.HScan(ctx, a.Key, 0, "", mostRead), askPTTL(ctx, pipe, a.Key)
		held = append(held, a)
	}
	if err := b.exec(ctx, pipe); err != nil {
		return err
	}
	var shared []*sharer
	for _, a := range held {
		if a.failed(a.fields, a.left) {
			continue
		}
		fields, cursor := a.fields.Val()
		if len(fields) == 0 || a.left.Val() == -2 { // deleted in the meantime
			continue
		}
		// With cursor 0 one HSCAN has read all fields, after the mode: the lock may have become another kind by then.
		if cursor == 0 {
			a.Kind = Mutex
		}
		holders, meta := a.parse(fields, remaining(a.left.Val()))
		switch {
		case a.err != nil:
		case a.Kind == RW:
			if cursor != 0 { // readers whose fields weren't read count as alive
				a.Held = max(int(a.size.Val())-len(fields)/2, 0)
			}
			for _, h := range holders {
				shared = append(shared, &sharer{Holder: h, of: a.reading})
			}
		default:
			holders[0].said(meta)
			a.Holders, a.Held, a.Remaining = holders, 1, holders[0].Remaining
			a.marked, a.inQueue = script.ParseMarks(meta)
		}
	}
	for some := range slices.Chunk(shared, readCount) {
		if err := b.readMarks(ctx, some); err != nil {
			return err
		}
	}
	return b.readWaiters(ctx)
}

const otherThings = "a hash of other things"

func isMode(text any) bool { return text == "read" || text == "write" }

// parse returns the holders in the fields of a hash, and the value of script.MetaField. What it rejects, the scripts
// reject too: see foreign.lua.
func (one *reading) parse(fields []string, left time.Duration) (holders []Holder, meta string) {
	// strange is an owner that IsOwner rejects, which is valid only beside MetaField. noted: that field is there.
	strange, noted := "", false
	for i := 0; i+1 < len(fields); i += 2 {
		owner, text := fields[i], fields[i+1]
		switch {
		case owner == modeField && isMode(text):
			one.Kind = RW
			continue
		case owner == script.MetaField:
			meta, noted = text, true
			continue
		case !script.IsCount(text) || owner == modeField:
			one.alien(fmt.Sprintf("its field %.64q is no owner", owner))
			return nil, ""
		}
		count, _ := strconv.Atoi(text)
		h := Holder{Owner: owner, ClientID: script.ClientIDOf(owner), Count: count, Remaining: left}
		if !script.IsOwner(owner) {
			strange = owner
		} else {
			h.Redisson = h.ClientID == ""
		}
		holders = append(holders, h)
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

// askPTTL queues a PTTL with a result in ms: the Duration that go-redis makes of it may overflow.
func askPTTL(ctx context.Context, pipe redis.Pipeliner, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, "pttl", key)
	_ = pipe.Process(ctx, cmd)
	return cmd
}

// remaining converts a reply of PTTL.
func remaining(ms int64) time.Duration {
	if ms < 0 {
		return noEnd
	}
	return script.Millis(ms)
}

// longer returns the longer of two remaining times.
func longer(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return noEnd
	}
	return max(a, b)
}

// sharer is a possible holder of a read-write lock. It holds the lock if one of its marks is left. Redisson's writers
// have no marks, and hold it as long as the key exists.
type sharer struct {
	Holder
	of   *reading
	meta *redis.StringCmd
	left []*redis.IntCmd
}

// readMarks reads the marks of sharers. It adds each sharer that holds its lock to the holders of that lock.
func (b *batch) readMarks(ctx context.Context, all []*sharer) error {
	pipe := b.node.Pipeline()
	for _, h := range all {
		h.Mode = "read"
		if strings.HasSuffix(h.Owner, script.WriteSuffix) {
			h.Mode = "write"
		}
		if h.Redisson && h.Mode == "write" {
			continue
		}
		h.meta = pipe.Get(ctx, script.MarkKey(h.of.Key, h.Owner))
		for n := h.Count; n >= max(h.Count-mostMarks+1, 1); n-- {
			h.left = append(h.left, askPTTL(ctx, pipe, script.MarkKeyOf(h.of.Key, h.Owner, n)))
		}
	}
	if err := b.exec(ctx, pipe); err != nil {
		return err
	}
	for _, h := range all {
		alive := h.meta == nil
		for _, left := range h.left {
			switch {
			case h.of.failed(left), left.Val() == -2:
			case !alive:
				alive, h.Remaining = true, remaining(left.Val())
			default:
				h.Remaining = longer(h.Remaining, remaining(left.Val()))
			}
		}
		if h.meta != nil && !otherType(h.meta.Err()) {
			h.of.failed(h.meta)
		}
		if !alive { // its lease has run out
			continue
		}
		if !h.Redisson {
			h.said(h.meta.Val())
		}
		h.of.add(h.Holder)
	}
	return nil
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

// numbers reads the semaphores, and other numbers, at the keys.
func (b *batch) numbers(ctx context.Context, keys []*reading) error {
	type permits struct {
		left       *redis.StringCmd
		over, held *redis.IntCmd
		first      *redis.StringSliceCmd
		next       *redis.ZSliceCmd
	}
	asked := make([]permits, len(keys))
	ms := strconv.FormatInt(b.now.UnixMilli(), 10)
	after := "(" + ms
	pipe := b.node.Pipeline()
	for i, one := range keys {
		key := script.PermitsKey(one.Key)
		asked[i] = permits{
			left: pipe.Get(ctx, one.Key), over: pipe.ZCount(ctx, key, "-inf", ms),
			held: pipe.ZCount(ctx, key, after, "+inf"), first: pipe.ZRange(ctx, key, 0, 0),
			next: pipe.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: after, Max: "+inf", Count: 1}),
		}
	}
	if err := b.exec(ctx, pipe); err != nil {
		return err
	}
	for i, one := range keys {
		a, why := asked[i], one.err
		left, _ := strconv.Atoi(a.left.Val())
		first, next := a.first.Val(), a.next.Val()
		one.err = nil
		switch {
		case one.failed(a.left, a.over, a.held, a.first, a.next):
		// Not a number, or no key: a sorted set of another program may have such a name.
		case !script.IsNumber(a.left.Val()):
			one.alien("it is no number")
		case len(first) == 0:
			one.Kind, one.Available = Number, left
		case len(first[0]) != permitBytes:
			one.alien("what is beside it are no permits")
		default:
			one.Kind, one.Held, one.Available, one.Remaining =
				Semaphore, int(a.held.Val()), left+int(a.over.Val()), noEnd
			if len(next) > 0 && next[0].Score < noLease {
				one.Remaining = script.Millis(int64(next[0].Score) - b.now.UnixMilli())
			}
		}
		if why != nil && errors.Is(one.err, ErrNotALock) { // the first error is more specific
			one.err = why
		}
	}
	return nil
}

const (
	permitBytes = 16   // length of a permit's name
	noLease     = 1e14 // ms, later than any real time: Redisson's permits without a lease end after it
)
