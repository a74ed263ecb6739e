package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// A server that lets a script touch only the keys that are declared, as Dragonfly does, is asked lock by lock.
func TestUndeclaredKeysRefused(t *testing.T) {
	t.Parallel()
	const lease, locks = 12 * time.Second, 100
	srv := redistest.Start(t)
	addr := redistest.DeclaredOnly(t, srv.Addr())
	s := newScope(t)
	c := s.open(t, srv.Client(t, func(o *redis.Options) { o.Addr = addr }), lock.WithLease(lease))
	leases := many(t, c, locks)
	for _, k := range allKinds {
		leases = append(leases, try(t, k.make(c, "kind:"+k.name)))
	}
	for i := range 3 {
		leases = append(leases, try(t, c.RWMutex(fmt.Sprint("rw:", i))), try(t, c.Multi([]string{fmt.Sprint("{a}:", i), fmt.Sprint("{b}:", i)})))
	}
	renewedAll(t, "one by one", lease, leases)
	freeAll(t, leases)
}
