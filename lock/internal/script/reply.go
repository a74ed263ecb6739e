package script

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// ErrReply is a reply that no script of ours gives.
var ErrReply = errors.New("lockdog: unreadable answer of Redis")

// unreadable quotes the beginning of such a reply.
func unreadable(reply any) error {
	return fmt.Errorf("%w: %.80s", ErrReply, fmt.Sprint(reply))
}

// ints reads the numbers at the beginning of a reply. It is small enough to be inlined, and the numbers then stay on the caller's stack.
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

// LeastTime is a time in µs, long past. What is less is no time, but a stray number: never a grant.
const LeastTime = 1 << 49

// Millis reads a PTTL: negative means that there is no expiry. What is too long for a Duration is the longest that can be added to another.
func Millis(ms int64) time.Duration {
	const longest = int64(1<<62) / int64(time.Millisecond) // there is room to add to it
	return time.Duration(min(max(ms, -1), longest)) * time.Millisecond
}

// refused is the error that a reply has at a place, nil if it has none.
func refused(reply []any, at int) error {
	if len(reply) > at {
		if text, ok := reply[at].(string); ok {
			return redisfail.ReplyError(text)
		}
	}
	return nil
}
