//go:build chaos

package chaos_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/internal/redistest"
)

// grantID is what stands for an owner in a lock's entry in Redis, less what its kind adds. "" is nobody.
func grantID(member string) string {
	if len(member) == 16 && history.GrantID(member) == "" { // a permit's
		return fmt.Sprintf("%s-%d", hex.EncodeToString([]byte(member[:8])), binary.BigEndian.Uint64([]byte(member[8:])))
	}
	return history.GrantID(member)
}

// askings is a hook of go-redis that notes which requests for a lock were given up, until when they may yet be done, and until when they were
// made again.
type askings struct {
	redistest.Hook
	diary *diary
	given *sync.Map // owners of such requests
}

// ProcessHook implements redis.Hook.
func (a askings) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		owner, notAfter, ok := asking(cmd.Args())
		if !ok {
			return err
		}
		e := history.Event{At: now(), What: history.Unclear, Owner: owner}
		var reply redis.Error
		if answered := err == nil || errors.As(err, &reply); answered {
			if _, before := a.given.Load(owner); !before {
				return err
			}
		} else if e.Delay = time.Until(time.UnixMicro(notAfter)); notAfter == 0 {
			e.Delay, e.Why = 0, "without a limit"
		}
		a.given.Store(owner, true)
		a.diary.note(e)
		return err
	}
}

// asking finds an owner, the lease it wants and the not-after, which follow each other in the scripts that take a lock.
func asking(args []any) (owner string, notAfter int64, ok bool) {
	if name, _ := args[0].(string); !strings.HasPrefix(name, "eval") {
		return "", 0, false
	}
	for i := 3; i+2 < len(args); i++ {
		member, isText := args[i].(string)
		lease, isLease := args[i+1].(int64)
		limit, isLimit := args[i+2].(int64)
		if isText && isLease && isLimit && lease > 0 && grantID(member) != "" {
			return grantID(member), limit, true
		}
	}
	return "", 0, false
}

const (
	lookEvery    = 100 * time.Millisecond
	lookPatience = 300 * time.Millisecond
)

// watch looks into Redis every now and then for who has the names of the run, past all proxies.
func (r *run) watch() (stop func() []history.Event) {
	f, _ := familyNamed(r.schedule.Family)
	if f.numbers {
		return func() []history.Event { return nil }
	}
	done, seen := make(chan struct{}), make(chan []history.Event)
	go func() {
		var all []history.Event
		var until time.Time // by then whatever a client left behind has to be gone
		for {
			select {
			case <-done:
				if until.IsZero() {
					until = time.Now().Add(r.schedule.Lease + max(0, -r.skew) + history.Grace)
				} else {
					time.Sleep(lookEvery)
				}
			case <-time.After(lookEvery):
			}
			nobody := true
			for _, t := range r.schedule.Targets {
				e, err := r.look(t)
				if err == nil {
					all = append(all, e)
				}
				nobody = nobody && err == nil && len(e.Owners) == 0
			}
			if !until.IsZero() && (nobody || time.Now().After(until)) {
				seen <- all
				return
			}
		}
	}()
	return sync.OnceValue(func() []history.Event {
		close(done)
		return <-seen
	})
}

// look says who has a name, on any server that thinks it has the name. It fails unless all answer.
func (r *run) look(t target) (history.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookPatience)
	defer cancel()
	e := history.Event{What: history.Peek, Name: t.Name, Since: now()}
	for _, s := range r.rig.servers {
		pipe := r.rig.admin(s).Pipeline()
		role := pipe.Do(ctx, "ROLE")
		var members *redis.StringSliceCmd
		if t.Family == "permits" { // those whose lease has run out are removed by the next who asks
			ms := time.Now().UnixMilli()
			members = pipe.ZRangeByScore(ctx, "{"+t.Name+"}:timeout", &redis.ZRangeBy{Min: strconv.FormatInt(ms, 10), Max: "+inf"})
		} else {
			members = pipe.HKeys(ctx, t.Name)
		}
		_, _ = pipe.Exec(ctx) // each has its own error
		is, err := role.Slice()
		if err != nil {
			return e, err
		}
		if is[0] != "master" {
			continue
		}
		who, err := members.Result()
		if err != nil && strings.HasPrefix(err.Error(), "MOVED") {
			continue
		}
		if err != nil { // as while it moves: then it may be where we can't see it
			return e, err
		}
		for _, m := range who {
			if id := grantID(m); id != "" && !slices.Contains(e.Owners, id) {
				e.Owners = append(e.Owners, id)
			}
		}
	}
	slices.Sort(e.Owners)
	e.At = now()
	return e, nil
}
