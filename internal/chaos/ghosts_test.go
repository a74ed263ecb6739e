//go:build chaos

package chaos_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
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

// askings is a hook of go-redis that notes until when a lock may yet be given to an owner of whom a request was given up: by that request,
// by a later one, or by another client's release while the owner's entry is in the wait set.
type askings struct {
	redistest.Hook
	diary *diary
	given *sync.Map // owners of such requests
}

// ProcessHook implements redis.Hook.
func (a askings) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		var reply redis.Error
		answered := err == nil || errors.As(err, &reply)
		for _, asked := range askingOf(cmd.Args()) {
			if _, before := a.given.Load(asked.owner); answered && !before {
				continue
			}
			a.given.Store(asked.owner, true)
			e := history.Event{At: now(), What: history.Unclear, Owner: asked.owner, Delay: asked.trust}
			switch {
			case answered:
			case asked.notAfter == 0:
				e.Why = "without a limit"
			default:
				e.Delay += time.Until(time.UnixMicro(asked.notAfter))
			}
			a.diary.note(e)
		}
		return err
	}
}

// asking is what a script may do for an owner: take the lock, or add the owner's entry to the wait set.
type asking struct {
	owner    string
	notAfter int64         // 0: it may do so at any time
	trust    time.Duration // how long another client's release may grant the lock by that entry
}

// waitEntry matches the entry of a waiter that may be granted the lock: see script.Entry.
var waitEntry = regexp.MustCompile(`^\d{10} (\d+) \S+ (.+)$`)

// askingOf finds the owner, the lease and the not-after, which follow each other in the scripts that take a lock, and the entries in these
// and in releases.
func askingOf(args []any) (all []asking) {
	if name, _ := args[0].(string); !strings.HasPrefix(name, "eval") {
		return nil
	}
	var notAfter int64
	for i := 3; i < len(args); i++ {
		text, _ := args[i].(string)
		if match := waitEntry.FindStringSubmatch(text); match != nil {
			ms, _ := strconv.Atoi(match[1])
			all = append(all, asking{grantID(match[2]), notAfter, time.Duration(ms) * time.Millisecond})
		} else if grantID(text) != "" && i+2 < len(args) {
			lease, isLease := args[i+1].(int64)
			if limit, isLimit := args[i+2].(int64); isLease && isLimit && lease > 0 {
				notAfter = limit
				all = append(all, asking{grantID(text), notAfter, 0})
			}
		}
	}
	return all
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
