package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Tracker is a Backend whose servers tell, by Redis' client-side caching, that a key has changed which was looked at.
type Tracker interface {
	// Track connects to a node. The connections are closed when ctx ends.
	Track(ctx context.Context, node string) (*Tracking, error)
}

// Tracking is two connections to one server. What is looked at over the eye is remembered there, once: the next change of the
// key is told over the ear, and then forgotten. One that breaks takes the other along. (One connection could do with RESP3, but
// go-redis reads what it is told there only while it runs a command.)
type Tracking struct {
	clients [2]*redis.Client
	ear     redisPubSub
	eye     *redis.Client // of one connection; not its Conn, for which go-redis forgets a StreamingCredentialsProvider, and panics
	stops   []func() bool // of what would close it
	once    sync.Once
}

// Look asks whether members are there, of a hash or a sorted set.
type Look struct {
	Key     string
	Sorted  bool
	Members []string
}

// Sight is the answer to a Look.
type Sight struct {
	There []bool        // by member
	TTL   time.Duration // of a hash; negative where it has none
	Err   error         // of this key
}

// invalidations is the channel on which Redis tells a RESP2 connection of changes.
const invalidations = "__redis__:invalidate"

var errTwice = errors.New("lockdog: go-redis dials again; what the first connection was to tell is gone")

// Track implements Tracker.
func (b *Redis) Track(ctx context.Context, node string) (*Tracking, error) {
	rdb, err := b.at(ctx, node)
	if err != nil {
		return nil, err
	}
	companion := func(connected func(context.Context, *redis.Conn) error) *redis.Client {
		return companion(b.optionsAt(node, rdb, 1), connected)
	}
	t := &Tracking{}
	var id atomic.Int64
	t.clients[0] = companion(func(ctx context.Context, cn *redis.Conn) error {
		own, err := cn.ClientID(ctx).Result()
		if err == nil && !id.CompareAndSwap(0, own) {
			return errTwice
		}
		return err
	})
	var dialed atomic.Bool
	t.clients[1] = companion(func(context.Context, *redis.Conn) error {
		if !dialed.CompareAndSwap(false, true) {
			return errTwice
		}
		return nil
	})
	t.ear.ps, t.eye = t.clients[0].Subscribe(ctx), t.clients[1]
	t.stops = []func() bool{context.AfterFunc(ctx, t.close), context.AfterFunc(b.during(node), t.close)}
	if err := t.begin(ctx, &id, b.timeout); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// begin has the server tell the ear what the eye has seen.
func (t *Tracking) begin(ctx context.Context, ear *atomic.Int64, timeout time.Duration) error {
	if err := t.ear.Subscribe(ctx, invalidations); err != nil {
		return err
	}
	if _, err := t.ear.Receive(ctx, timeout); err != nil {
		return err
	}
	return t.eye.Process(ctx, redis.NewCmd(ctx, "client", "tracking", "on", "redirect", ear.Load()))
}

// companion returns a client for one connection, which go-redis never replaces in silence.
func companion(o *redis.Options, connected func(context.Context, *redis.Conn) error) *redis.Client {
	alsoOnConnect(o, connected)
	o.Protocol, o.PipelinePoolSize = 2, -1
	o.ConnMaxIdleTime, o.ConnMaxLifetime, o.DialerRetries = -1, 0, 1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // needs RESP3
	return redis.NewClient(o)
}

// Look looks at keys, and has the next change of each told. An error is that of the connection. It is for one goroutine, like Ping.
func (t *Tracking) Look(ctx context.Context, looks []Look) ([]Sight, error) {
	pipe := t.eye.Pipeline()
	answers := make([]func() Sight, len(looks))
	for i, l := range looks {
		if l.Sorted {
			answers[i] = readScores(pipe.ZMScore(ctx, l.Key, l.Members...))
		} else {
			answers[i] = readFields(pipe.HMGet(ctx, l.Key, l.Members...), pipe.PTTL(ctx, l.Key))
		}
	}
	_, err := pipe.Exec(ctx)
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) { // else it is that of one command
		return nil, err
	}
	sights := make([]Sight, len(looks))
	for i, l := range looks {
		sights[i] = answers[i]()
		if got := len(sights[i].There); sights[i].Err == nil && got != len(l.Members) {
			return nil, fmt.Errorf("lockdog: %d answers for %d members", got, len(l.Members))
		}
	}
	return sights, nil
}

func readFields(fields *redis.SliceCmd, ttl *redis.DurationCmd) func() Sight {
	return func() Sight {
		s := Sight{TTL: ttl.Val(), Err: errors.Join(fields.Err(), ttl.Err())}
		for _, v := range fields.Val() {
			s.There = append(s.There, v != nil)
		}
		return s
	}
}

// readScores takes 0 for what isn't there, as go-redis gives it: a permit's score is when it ends.
func readScores(scores *redis.FloatSliceCmd) func() Sight {
	return func() Sight {
		s := Sight{TTL: -1, Err: scores.Err()}
		for _, v := range scores.Val() {
			s.There = append(s.There, v != 0)
		}
		return s
	}
}

// Ping asks the eye for a sign of life.
func (t *Tracking) Ping(ctx context.Context) error { return t.eye.Ping(ctx).Err() }

// PingEar asks the ear for one, which Receive returns.
func (t *Tracking) PingEar(ctx context.Context) error { return t.ear.Ping(ctx) }

// Receive waits for keys that have changed; all is true where that may be every one. ErrIdle after timeout without news; any other
// error is final.
func (t *Tracking) Receive(ctx context.Context, timeout time.Duration) (keys []string, all bool, err error) {
	ev, err := t.ear.Receive(ctx, timeout)
	if err != nil && strings.Contains(err.Error(), "unsupported pubsub message payload") {
		return nil, true, nil // null, for a database that was flushed. Should go-redis say so otherwise some day, it is an error.
	}
	return ev.Keys, false, err
}

// Close closes the connections. Calls in flight fail.
func (t *Tracking) Close() {
	for _, stop := range t.stops {
		stop()
	}
	t.close()
}

func (t *Tracking) close() {
	t.once.Do(func() {
		_ = t.ear.Close()
		for _, c := range t.clients {
			_ = c.Close()
		}
	})
}
