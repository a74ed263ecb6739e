package script

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// ErrReply is matched by the error for a reply that the called script never returns.
var ErrReply = errors.New("lockdog: unreadable answer of Redis")

// unreadable returns an ErrReply that quotes the beginning of the reply.
func unreadable(reply any) error {
	return fmt.Errorf("%w: %.80s", ErrReply, fmt.Sprint(reply))
}

// ints returns a reply as a list, and the n integers at its beginning. It is small enough to be inlined: with a
// constant n, the integers then stay on the caller's stack.
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

// LeastTime is a Unix time in µs, of the year 1987. A smaller number in a reply or a message isn't a time.
const LeastTime = 1 << 49

// Millis converts a PTTL to a Duration, which is negative if there is no expiry, or no key. It returns at most half of
// the longest Duration, so that callers can add to it.
func Millis(ms int64) time.Duration {
	const longest = int64(1<<62) / int64(time.Millisecond)
	return time.Duration(min(max(ms, -1), longest)) * time.Millisecond
}

// refused returns the error whose text a reply has at an index, nil if there is none.
func refused(reply []any, at int) error {
	if len(reply) > at {
		if text, ok := reply[at].(string); ok {
			return redisfail.ReplyError(text)
		}
	}
	return nil
}
