//go:build chaos

package chaos_test

import (
	"github.com/lockdog/lockdog/lock"
)

// kind is a way to take locks: what the workload needs to know of it.
type kind struct {
	name   string
	family string // kinds of one family may be asked for the same name
	weight int    // how much of a name's room one grant takes; more than the room of a name can't be in it at one time
	room   int
	locker func(c *lock.Client, name string, opts ...lock.LockOption) lock.Locker
}

// kinds are all kinds of locks. To add one is to add its line.
var kinds = []kind{
	{"mutex", "mutex", 1, 1, func(c *lock.Client, name string, opts ...lock.LockOption) lock.Locker { return c.Mutex(name, opts...) }},
}

// families are the families of kinds, each once.
func families() (all []string) {
	for _, k := range kinds {
		if len(all) == 0 || all[len(all)-1] != k.family {
			all = append(all, k.family)
		}
	}
	return all
}

// ofFamily are the kinds by which a name of the family can be taken.
func ofFamily(family string) (all []kind) {
	for _, k := range kinds {
		if k.family == family {
			all = append(all, k)
		}
	}
	return all
}
