package lock

import (
	"errors"
	"fmt"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// foreign returns the error of a call that met what isn't lockdog's in one of the lock's keys, and left it alone; nil if err is another.
func (lk *lock) foreign(op string, err error) error {
	holds := "holds something else than this kind of lock"
	if n := lk.kind.number; n != "" {
		holds = "doesn't hold a " + n
	}
	switch {
	case redisfail.IsOutOfRange(err):
		return fmt.Errorf("%w: %s %q: %s: %d permits at most are allowed, given and owed: %w", ErrInvalid, lk.kind.words(), lk.name, op, maxCount, err)
	case errors.Is(err, ErrLost): // by what is there now
		return nil
	case redisfail.IsWrongType(err), lk.kind.number != "" && redisfail.IsNotInteger(err):
		return fmt.Errorf("%w: %s %q: %s: its key %q in Redis, or one beside it, %s; choose another name: %w",
			ErrInvalid, lk.kind.words(), lk.name, op, lk.key, holds, err)
	}
	return nil
}
