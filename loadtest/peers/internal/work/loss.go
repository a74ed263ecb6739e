package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
)

const (
	lossName = "peers:loss"
	// settle is the minimum time between a grant and the loss. Right after a grant a client may not get notifications
	// yet: it would learn of the loss only at its next renewal.
	settle = 100 * time.Millisecond
)

// lose repeatedly acquires a lock, takes it away from its holder, and measures how long it takes until the holder is
// notified. It uses each way at least once, and continues until the window is over.
func lose(ctx context.Context, cfg *Config) (r Result, err error) {
	holder, err := openTeller(cfg)
	if err != nil {
		return r, err
	}
	defer func() { _ = holder.Close() }() // an error is about locks that are lost
	other, err := openTeller(cfg)
	if err != nil {
		return r, err
	}
	defer func() { _ = other.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: cfg.Addrs[0]})
	defer func() { _ = rdb.Close() }()

	ways := []struct {
		name string
		key  figures.Key
		take func() error
	}{
		{"DEL", figures.ToldDel, func() error { return rdb.Del(ctx, holder.Key(lossName)).Err() }},
		{"FLUSHALL", figures.ToldFlush, func() error { return rdb.FlushAll(ctx).Err() }},
		{"forced unlock", figures.ToldForce, func() error { return other.Force(ctx, lossName) }},
	}
	r.Told = figures.Figures{figures.ToldNever: 0}
	began := time.Now()
	for i := 0; i < len(ways) || time.Since(began) < cfg.Window; i++ {
		way := ways[i%len(ways)]
		after, err := loseOnce(ctx, cfg, holder, way.take)
		switch {
		case errors.Is(err, errNever):
			r.Told[figures.ToldNever]++
		case err != nil:
			return r, fmt.Errorf("%s: %w", way.name, err)
		default:
			r.Told[way.key] = max(r.Told[way.key], float64(after)/float64(time.Millisecond))
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

var errNever = errors.New("not told within twice the lease")

func openTeller(cfg *Config) (peer.Teller, error) {
	locks, err := peer.Open(cfg.Peer, cfg.Config)
	if err != nil {
		return nil, err
	}
	t, ok := locks.(peer.Teller)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s tells no holder of a loss", cfg.Peer), locks.Close())
	}
	return t, nil
}

func loseOnce(ctx context.Context, cfg *Config, holder peer.Teller, take func() error) (time.Duration, error) {
	h, err := holder.Lock(ctx, lossName, true)
	if err != nil {
		return 0, err
	}
	lost := holder.Lost(h)
	time.Sleep(settle + rand.N(settle))
	select {
	case <-lost:
		return 0, errors.New("lost before it was taken away")
	default:
	}
	began := time.Now()
	if err := take(); err != nil {
		return 0, err
	}
	timer := time.NewTimer(2 * cfg.Lease)
	defer timer.Stop()
	select {
	case <-lost:
	case <-timer.C:
		err = errNever
	}
	after := time.Since(began)
	_ = h.Release(ctx) // reports the loss
	return after, err
}
