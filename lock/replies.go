package lock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// What the answers of the scripts in requests.go mean.

// verdict is Redis's answer to a bid.
type verdict struct {
	granted bool
	token   int64
	now     int64     // Redis's time, µs
	sent    time.Time // before the request left: the lease counts from here
	holder  HeldError // when not granted; without the name
	meta    string    // what the holder says of itself
	left    int64     // when granted: what is left for others, where it can be shared
	acked   int       // replicas that have the grant, where that was asked for
	moving  bool      // the lock's slot is on its way to another node
}

// errReply is an answer that no script of ours gives.
var errReply = errors.New("lockdog: unreadable answer of Redis")

// unreadable quotes the beginning of such an answer.
func unreadable(reply any) error {
	return fmt.Errorf("%w: %.80s", errReply, fmt.Sprint(reply))
}

// ints reads the numbers that a script's answer starts with. It is small enough to be inlined, and the numbers then stay on
// the caller's stack.
func ints(reply any, n int) ([]any, []int64, error) {
	nums := make([]int64, n)
	list, err := readInts(nums, reply)
	return list, nums, err
}

func readInts(nums []int64, reply any) ([]any, error) {
	list, ok := reply.([]any)
	if !ok || len(list) < len(nums) {
		return nil, unreadable(reply)
	}
	for i := range nums {
		if nums[i], ok = list[i].(int64); !ok {
			return nil, unreadable(reply)
		}
	}
	return list, nil
}

// leastTime is a time in µs, long past. What is less is no time, but a stray number: never a grant.
const leastTime = 1 << 49

// readVerdict reads the answer of the acquire script. It returns Redis's time, too.
func readVerdict(reply any) (v verdict, now int64, err error) {
	if now, ok := reply.(int64); ok && now > leastTime {
		return verdict{granted: true, token: now, left: 1, holder: HeldError{Remaining: -1}}, now, nil
	}
	list, nums, err := ints(reply, 2)
	if err != nil {
		return verdict{}, 0, err
	}
	now = nums[1]
	switch nums[0] {
	case 1:
		_, nums, err = ints(reply, 3)
		if err != nil {
			return verdict{}, 0, err
		}
		v = verdict{granted: true, token: nums[2], left: 1, holder: HeldError{Remaining: -1}} // there may be
		if _, more, err := ints(reply, 5); err == nil {
			v.left, v.holder.Remaining = more[3], millis(more[4])
		}
		return v, now, nil
	case 0:
		if _, nums, err = ints(reply, 3); err != nil || len(list) < 5 {
			return verdict{}, 0, unreadable(reply)
		}
		owner, ok1 := list[3].(string)
		meta, ok2 := list[4].(string)
		if !ok1 || !ok2 {
			return verdict{}, 0, unreadable(reply)
		}
		return verdict{holder: HeldError{Owner: owner, Remaining: millis(nums[2])}, meta: meta}, now, nil
	case 2:
		return verdict{}, now, redisfail.ErrLate
	}
	return verdict{}, 0, unreadable(reply)
}

// millis reads a PTTL: negative means that there is no expiry.
func millis(ms int64) time.Duration {
	const longest = int64(1<<62) / int64(time.Millisecond) // there is room to add to it
	return time.Duration(min(max(ms, -1), longest)) * time.Millisecond
}

// meta is what a holder says of itself beside its owner.
type meta struct {
	token       int64
	traceparent string
}

// marks are what may stand before the token in a '@lockdog' field: a release of the lock has to look for waiters. See acquire.lua.
const marks = "+~"

// parseMeta reads a '@lockdog' field. Anybody may have written it: what doesn't parse counts as absent.
func parseMeta(s string) meta {
	token, traceparent, _ := strings.Cut(strings.TrimLeft(s, marks), " ")
	n, err := strconv.ParseInt(token, 10, 64)
	if err != nil || n < 0 {
		n = 0
	}
	return meta{n, traceparent}
}

// freed is Redis's answer to a release.
type freed struct {
	outcome     freedOutcome
	unconfirmed bool      // an earlier try may have done it; its answer never came
	untold      error     // released, but the server refused a step that tells waiters of it
	token       int64     // of the waiter who got the lock
	sent        time.Time // before the request left
}

type freedOutcome uint8

const (
	freedPublished freedOutcome = iota
	freedHandedOver
	freedMissing // not ours any more, and nobody's
	freedTaken   // not ours any more, but somebody's
)

// readFreed reads the answer of the release and hand-over scripts. It returns Redis's time, too, 0 where that isn't in it.
func readFreed(reply any) (freed, int64, error) {
	switch n, _ := reply.(int64); {
	case n == 1:
		return freed{outcome: freedPublished}, 0, nil
	case n > leastTime:
		return freed{outcome: freedHandedOver, token: n}, n, nil
	}
	list, nums, err := ints(reply, 2)
	if err != nil {
		return freed{}, 0, err
	}
	now := nums[1]
	switch nums[0] {
	case 1:
		return freed{outcome: freedPublished, untold: untold(list, 2)}, now, nil
	case 2, 0:
		_, more, err := ints(reply, 3)
		if err != nil {
			return freed{}, 0, err
		}
		if nums[0] == 2 {
			return freed{outcome: freedHandedOver, token: more[2]}, now, nil
		}
		if more[2] != 0 {
			return freed{outcome: freedTaken}, now, nil
		}
		return freed{outcome: freedMissing}, now, nil
	case 3:
		return freed{}, now, redisfail.ErrLate
	}
	return freed{}, 0, unreadable(reply)
}

// untold is the error that an answer has at this place, nil if it has none.
func untold(answer []any, at int) error {
	if len(answer) > at {
		if text, ok := answer[at].(string); ok {
			return redisfail.ReplyError(text)
		}
	}
	return nil
}

// readHolder reads the answer of the inspect script.
func readHolder(reply any) (Holder, error) {
	list, nums, err := ints(reply, 2)
	if err != nil {
		return Holder{}, err
	}
	h := Holder{Remaining: millis(nums[1])}
	for i := 2; i+1 < len(list); i += 2 {
		field, ok1 := list[i].(string)
		value, ok2 := list[i+1].(string)
		if !ok1 || !ok2 {
			return Holder{}, unreadable(reply)
		}
		switch {
		case field == metaField:
			m := parseMeta(value)
			h.Token, h.TraceID = m.token, traceID(m.traceparent)
		case field == "mode": // of a read-write lock; without one before it, of somebody who took it for another kind
			if h.Owner != "" {
				h.Mode = value
			}
		case h.Owner != "" && field == "readers":
			h.Readers, _ = strconv.Atoi(value)
		case h.Owner == "":
			h.Held, h.Owner = true, field
			h.Count, _ = strconv.Atoi(value)
		}
	}
	if !h.Held {
		return Holder{}, nil
	}
	return h, nil
}
