package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/delay"
)

const (
	lossName = "peers:loss"
	// lossLease is short, because a holder may be told only at a renewal.
	lossLease = 1500 * time.Millisecond
	// settle is the minimum time between a grant and the loss. Right after a grant a client may not get notifications
	// yet: it would learn of the loss only at its next renewal.
	settle = 100 * time.Millisecond
)

// BenchmarkLoss measures how late a holder is told that its lock is gone. The other peers never tell.
func BenchmarkLoss(b *testing.B) {
	for _, way := range []string{"DEL", "FLUSHALL", "ForceUnlock"} {
		for _, peer := range []string{rueidisLock, lockdog, lockdogLoss} {
			b.Run(fmt.Sprintf("way=%s/peer=%s", way, peer), func(b *testing.B) {
				if err := benchLoss(b, way, peer); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

func benchLoss(b *testing.B, way, peer string) (err error) {
	_, addrs, stop, err := delay.Launch(false, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	var both [2]*library
	for i := range both {
		if both[i], err = open(work{Peer: peer, Addrs: addrs, Lease: lossLease}); err != nil {
			return err
		}
		defer func() { _ = both[i].close() }() // an error is about locks that are lost
	}
	holder, other := both[0], both[1]
	take := map[string]func(context.Context) error{
		"DEL":         func(ctx context.Context) error { return rdb.Del(ctx, holder.prefix+lossName).Err() },
		"FLUSHALL":    func(ctx context.Context) error { return rdb.FlushAll(ctx).Err() },
		"ForceUnlock": func(ctx context.Context) error { return other.force(ctx, lossName) },
	}[way]
	var told []time.Duration
	for b.Loop() {
		after, err := lose(b.Context(), holder, take)
		switch {
		case err != nil:
			return err
		case after < 2*lossLease:
			told = append(told, after)
		}
	}
	b.ReportMetric(0, "ns/op") // not reported: it includes the time before the loss
	b.ReportMetric(float64(b.N-len(told)), "untold")
	if len(told) > 0 {
		b.ReportMetric(quantile(told, .5), "p50-ns")
		b.ReportMetric(quantile(told, 1), "longest-ns")
	}
	return nil
}

// lose acquires a lock, takes it away, and returns the time until the holder is told, at most twice the lease.
func lose(ctx context.Context, holder *library, take func(context.Context) error) (time.Duration, error) {
	h, err := holder.lock(ctx, lossName)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.Release(ctx) }() // reports the loss
	select {
	case <-holder.lost(h):
		return 0, errors.New("lost before it was taken away")
	case <-time.After(settle + rand.N(settle)):
	}
	began := time.Now()
	if err := take(ctx); err != nil {
		return 0, err
	}
	select {
	case <-holder.lost(h):
		return time.Since(began), nil
	case <-time.After(2 * lossLease):
		return 2 * lossLease, nil
	}
}
