package lock

import (
	"errors"
	"fmt"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// foreign returns the error of a call that found data of another kind or program in a key of the lock, and didn't
// change it, or that would have added or removed too many permits. For any other error it returns nil.
func (lk *lock) foreign(op string, err error) error {
	holds := "holds something else than this kind of lock"
	if n := lk.kind.number; n != "" {
		holds = "doesn't hold a " + n
	}
	switch {
	case redisfail.IsOutOfRange(err):
		return fmt.Errorf("%w: %s %q: %s: %d permits at most are allowed, given and owed: %w",
			ErrInvalid, lk.kind.words(), lk.name, op, maxCount, err)
	case errors.Is(err, ErrLost): // that data has replaced the lock of a live lease, which is a loss
		return nil
	case redisfail.IsWrongType(err), lk.kind.number != "" && redisfail.IsNotInteger(err):
		return fmt.Errorf("%w: %s %q: %s: its key %q in Redis, or one beside it, %s; choose another name: %w",
			ErrInvalid, lk.kind.words(), lk.name, op, lk.key, holds, err)
	}
	return nil
}
