package fleet

import (
	"cmp"
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
	mostMarks = 100    // of a holder that entered more often only the last marks are looked at, as rw.lua does
)

// noEnd is the time that is left of what has no end.
const noEnd = -time.Millisecond

// batch reads some keys. Each step asks for all of them in one pipeline.
type batch struct {
	prefix string
	from   pipelines
	now    time.Time // by the server's clock
	shards bool      // from is a node of a Cluster
	all    bool      // a Lock is wanted for each key, with all that there may be beside it; otherwise those that are held or awaited
	keys   []*reading
}

// pipelines is a client that pipelines can be sent with.
type pipelines interface{ Pipeline() redis.Pipeliner }

// reading is a Lock that is being read.
type reading struct {
	Lock
	err     error // why it can't be read, or is none
	marked  bool  // clients are in the wait set
	inQueue bool  // of a FairMutex, some are
	cursor  uint64
	seen    map[string]bool // of a read-write lock: owners that were looked at
}

// refusedError is the error of keys that the server refused to read.
type refusedError struct {
	keys  int
	first string
	err   error
}

func (e *refusedError) Error() string {
	if e.keys == 1 {
		return e.err.Error()
	}
	return fmt.Sprintf("%d keys can't be read, such as %q: %v", e.keys, e.first, e.err)
}

func (e *refusedError) Unwrap() error { return e.err }

// read reads what the keys hold, at the node that should have them; how is a method of batch. The error may be a *refusedError of some keys, beside the locks of
// the others. With all, there is a Lock for each key or an error.
func (r *Reader) read(ctx context.Context, node *redis.Client, keys []string, how func(*batch, context.Context) error, all bool) ([]Lock, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	var locks []Lock
	var refused *refusedError
	from := pipelines(node)
	for len(keys) > 0 {
		b := &batch{prefix: r.prefix, from: from, now: now, all: all, shards: from != pipelines(r.rdb)}
		for _, key := range keys {
			b.keys = append(b.keys, &reading{Lock: Lock{Name: strings.TrimPrefix(key, r.prefix), Key: key, Kind: Mutex}})
		}
		if err := how(b, ctx); err != nil {
			return nil, err
		}
		keys = nil
		for _, one := range b.keys {
			switch {
			case one.err == nil:
				if all || one.Held > 0 || one.Waiting > 0 {
					locks = append(locks, one.Lock)
				}
			case errors.Is(one.err, ErrNotALock):
				if all {
					return nil, one.err
				}
			case from != pipelines(r.rdb) && (redis.HasErrorPrefix(one.err, "MOVED") || redis.HasErrorPrefix(one.err, "ASK")):
				keys = append(keys, one.Key) // its slot has left the node
			case refused == nil:
				refused = &refusedError{1, one.Key, one.err}
			default:
				refused.keys++
			}
		}
		from = r.rdb // follows slots
	}
	if refused != nil {
		return locks, refused
	}
	return locks, nil
}

// exec sends commands. The error is of those that got no answer; what the server refused is for each command to say.
func exec(ctx context.Context, pipe redis.Pipeliner) error {
	if pipe.Len() == 0 {
		return nil
	}
	cmds, _ := pipe.Exec(ctx)
	for _, cmd := range cmds {
		var answer redis.Error
		if err := cmd.Err(); err != nil && !errors.As(err, &answer) {
			return err
		}
	}
	return nil
}

// otherType reports whether a command was refused because a key holds something else.
func otherType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// failed notes the first error of commands. It reports whether there was one.
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

// alien notes that a key holds no lock.
func (one *reading) alien(why string) {
	one.err = fmt.Errorf("%w: %q: %s", ErrNotALock, one.Key, why)
}

// still are the keys that are locks, as far as is known.
func (b *batch) still() []*reading {
	var locks []*reading
	for _, one := range b.keys {
		if one.err == nil {
			locks = append(locks, one)
		}
	}
	return locks
}

// hashes reads the locks that are hashes.
func (b *batch) hashes(ctx context.Context) error {
	for _, step := range []func(context.Context) error{b.readHashes, b.readWaiters} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readHashes reads who holds the locks. Fields are only asked for where they may be those of a lock: hashes of applications can be large.
func (b *batch) readHashes(ctx context.Context) error {
	type outline struct {
		size  *redis.IntCmd
		marks *redis.SliceCmd
	}
	outlines := make([]outline, len(b.keys))
	pipe := b.from.Pipeline()
	for i, one := range b.keys {
		outlines[i] = outline{pipe.HLen(ctx, one.Key), pipe.HMGet(ctx, one.Key, script.MetaField, modeField)}
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	var held []*reading
	for i, one := range b.keys {
		o := outlines[i]
		if one.failed(o.size, o.marks) || o.size.Val() == 0 {
			continue
		}
		marks := o.marks.Val()
		mode, _ := marks[1].(string)
		switch {
		case isMode(mode):
			one.Kind = RW
		case marks[0] == nil && o.size.Val() != 1 && !b.all: // ours has our field, and Redisson's no other
			one.alien(otherThings)
			continue
		}
		held = append(held, one)
	}
	for rest := slices.Clone(held); len(rest) > 0; { // more than once for those with more readers than one answer has
		if err := b.readFields(ctx, rest); err != nil {
			return err
		}
		rest = slices.DeleteFunc(rest, func(one *reading) bool { return one.err != nil || one.cursor == 0 })
	}
	for _, one := range held {
		if one.err == nil && one.Kind == RW && one.seen != nil && len(one.seen) == 0 {
			one.alien(otherThings)
		}
	}
	return nil
}

const otherThings = "a hash of other things"

func isMode(text string) bool { return text == "read" || text == "write" }

// readFields reads the fields of hashes from their cursors on.
func (b *batch) readFields(ctx context.Context, held []*reading) error {
	type page struct {
		fields *redis.ScanCmd
		left   *redis.IntCmd // ms; asked for last: without a key there is no time
	}
	pages := make([]page, len(held))
	pipe := b.from.Pipeline()
	for i, one := range held {
		pages[i] = page{pipe.HScan(ctx, one.Key, one.cursor, "", Most), askPTTL(ctx, pipe, one.Key)}
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	var shared []sharedPage
	for i, one := range held {
		p := pages[i]
		if one.failed(p.fields, p.left) {
			continue
		}
		fields, cursor := p.fields.Val()
		first := one.seen == nil
		one.cursor = cursor
		if len(fields) == 0 || p.left.Val() == -2 { // gone meanwhile
			continue
		}
		if first {
			one.seen = map[string]bool{}
			if cursor == 0 { // all fields of one moment: it may have become a lock of another kind since it was asked for its mode
				one.Kind = kindOf(fields)
			}
		}
		holders, meta := one.parse(fields, remaining(p.left.Val()))
		switch {
		case one.err != nil:
		case one.Kind == RW:
			shared = append(shared, sharedPage{of: one, holders: holders})
		case len(holders) != 1 || cursor != 0:
			one.alien(otherThings)
		default:
			one.Holders, one.Held, one.Remaining = holders, 1, holders[0].Remaining
			h := &one.Holders[0]
			h.Token, h.Since, h.TraceID, h.SpanID = parseMeta(meta)
			one.marked, one.inQueue = script.ParseMarks(meta)
		}
	}
	return b.readMarks(ctx, shared)
}

// kindOf is the kind of the lock with these fields.
func kindOf(fields []string) Kind {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == modeField && isMode(fields[i+1]) {
			return RW
		}
	}
	return Mutex
}

// parse reads holders from fields of a hash, and what our field says. What is no lock is none to the scripts either: see foreign.lua.
func (one *reading) parse(fields []string, left time.Duration) (holders []Holder, meta string) {
	noted := false // a holder with our field may have any name
	for i := 0; i < len(fields); i += 2 {
		noted = noted || fields[i] == script.MetaField && one.Kind != RW
	}
	for i := 0; i+1 < len(fields); i += 2 {
		owner, text := fields[i], fields[i+1]
		switch {
		case owner == script.MetaField && one.Kind != RW:
			meta = text
			continue
		case one.Kind == RW && (owner == modeField || one.seen[owner]):
			continue
		}
		named := script.IsOwner(owner)
		if !script.IsCount(text) || owner == modeField || !named && !noted {
			one.alien(fmt.Sprintf("its field %.64q is no owner", owner))
			return nil, ""
		}
		count, _ := strconv.Atoi(text)
		id := script.ClientIDOf(owner)
		h := Holder{Owner: owner, ClientID: id, Redisson: named && id == "", Count: count, Remaining: left}
		if one.Kind == RW {
			one.seen[owner] = true
			h.Mode = "read"
			if strings.HasSuffix(owner, script.WriteSuffix) {
				h.Mode = "write"
			}
		}
		holders = append(holders, h)
	}
	return holders, meta
}

// parseMeta reads what a holder of ours says of itself. Its token is when it got the lock, unless the clock was behind or it came from Redisson's counter.
func parseMeta(meta string) (token int64, since time.Time, traceID, spanID string) {
	token, traceparent := script.ParseMeta(meta)
	if token > script.LeastTime {
		since = time.UnixMicro(token)
	}
	traceID, spanID = parseTrace(traceparent)
	return token, since, traceID, spanID
}

func parseTrace(traceparent string) (traceID, spanID string) {
	if sc, ok := telemetry.ParseTraceparent(traceparent); ok {
		return sc.TraceID().String(), sc.SpanID().String()
	}
	return "", ""
}

// askPTTL asks for a PTTL in ms: go-redis makes a Duration of it, which may overflow.
func askPTTL(ctx context.Context, pipe redis.Pipeliner, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, "pttl", key)
	_ = pipe.Process(ctx, cmd)
	return cmd
}

// remaining is what PTTL says.
func remaining(ms int64) time.Duration {
	if ms < 0 {
		return noEnd
	}
	return script.Millis(ms)
}

// longer returns the longer of two times that are left.
func longer(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return noEnd
	}
	return max(a, b)
}

// sharedPage are some of the holders of a read-write lock.
type sharedPage struct {
	of      *reading
	holders []Holder
}

// readMarks adds the holders of read-write locks that are alive: those that have a mark. Redisson's writers have none, and live as long as the lock.
func (b *batch) readMarks(ctx context.Context, pages []sharedPage) error {
	type marks struct {
		meta *redis.StringCmd
		left []*redis.IntCmd
	}
	var asked []marks
	pipe := b.from.Pipeline()
	for _, p := range pages {
		for _, h := range p.holders {
			var m marks
			if !h.Redisson || h.Mode != "write" {
				m.meta = pipe.Get(ctx, script.MarkKey(p.of.Key, h.Owner))
				for n := h.Count; n >= max(h.Count-mostMarks+1, 1); n-- {
					m.left = append(m.left, askPTTL(ctx, pipe, script.MarkKeyOf(p.of.Key, h.Owner, n)))
				}
			}
			asked = append(asked, m)
		}
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	for _, p := range pages {
		for _, h := range p.holders {
			m := asked[0]
			asked = asked[1:]
			if m.meta != nil {
				if err := m.meta.Err(); err != nil && !errors.Is(err, redis.Nil) && !otherType(err) {
					p.of.err = cmp.Or(p.of.err, err)
				}
				alive := false
				for _, left := range m.left {
					switch {
					case left.Err() != nil:
						p.of.err = cmp.Or(p.of.err, left.Err())
					case left.Val() == -2:
					case !alive:
						alive, h.Remaining = true, remaining(left.Val())
					default:
						h.Remaining = longer(h.Remaining, remaining(left.Val()))
					}
				}
				if !alive { // it let its lease run out
					continue
				}
				if !h.Redisson {
					h.Token, h.Since, h.TraceID, h.SpanID = parseMeta(m.meta.Val())
				}
			}
			p.of.add(h)
		}
	}
	return nil
}

// add adds a holder of a read-write lock.
func (one *reading) add(h Holder) {
	if one.Mode != "write" {
		one.Mode = h.Mode
	}
	one.Remaining = longer(one.Remaining, h.Remaining)
	one.Held++
	switch {
	case len(one.Holders) < Most:
		one.Holders = append(one.Holders, h)
	case h.Mode == "write": // it is more to be known than a reader
		one.Holders[Most-1] = h
	}
}

// semaphores reads the semaphores whose number the keys are.
func (b *batch) semaphores(ctx context.Context) error {
	type permits struct {
		left       *redis.StringCmd
		over, held *redis.IntCmd
		first      *redis.StringSliceCmd
		next       *redis.ZSliceCmd
	}
	asked := make([]permits, len(b.keys))
	ms := strconv.FormatInt(b.now.UnixMilli(), 10)
	after := "(" + ms
	pipe := b.from.Pipeline()
	for i, one := range b.keys {
		key := script.PermitsKey(one.Key)
		asked[i] = permits{
			left: pipe.Get(ctx, one.Key), over: pipe.ZCount(ctx, key, "-inf", ms), held: pipe.ZCount(ctx, key, after, "+inf"), first: pipe.ZRange(ctx, key, 0, 0),
			next: pipe.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: after, Max: "+inf", Count: 1}),
		}
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	for i, one := range b.keys {
		a := asked[i]
		if one.failed(a.left, a.over, a.held, a.first, a.next) {
			continue
		}
		left, _ := strconv.Atoi(a.left.Val())
		first := a.first.Val()
		switch {
		case !script.IsNumber(a.left.Val()): // other text, or none: a sorted set of others' may be named so, too
			one.alien("it is no number")
			continue
		case len(first) == 0:
			one.Kind, one.Available = Number, left
			continue
		case len(first[0]) != permitBytes:
			one.alien("what is beside it are no permits")
			continue
		}
		one.Kind, one.Held, one.Available, one.Remaining = Semaphore, int(a.held.Val()), left+int(a.over.Val()), noEnd
		if next := a.next.Val(); len(next) > 0 && next[0].Score < noLease {
			one.Remaining = script.Millis(int64(next[0].Score) - b.now.UnixMilli())
		}
	}
	return nil
}

const (
	permitBytes = 16   // how long the name of a permit is
	noLease     = 1e14 // more than any time in ms: Redisson's mark of a permit without a lease is
)
