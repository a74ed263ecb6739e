// Command contention writes a contention profile: two functions use one lock, and one of them makes the other wait.
//
//	go run ./examples/contention locks.pb.gz && go tool pprof -top locks.pb.gz
//
// It needs nothing installed: it has an embedded Redis. A service serves the profile, for `go tool pprof` and
// continuous profilers, with the debug page or with lockprofile.Write.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockprofile"
)

const rounds = 20

// book holds the lock for a short time.
func book(ctx context.Context, m *lock.Mutex) error {
	return m.Do(ctx, func(context.Context, *lock.Lease) error { return work(time.Millisecond) })
}

// report creates and sends a document while it holds the lock. The profile shows that this is the mistake.
func report(ctx context.Context, m *lock.Mutex) error {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(ctx) }()
	return work(50 * time.Millisecond)
}

func work(d time.Duration) error {
	time.Sleep(d)
	return nil
}

// run runs four goroutines that book and one that reports, and writes the profile to path.
func run(ctx context.Context, rdb redis.UniversalClient, path string) (err error) {
	locks, err := lock.New(rdb, lock.WithContentionProfile(1)) // 1: record every acquire, because there are only few
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	m := locks.Mutex("ledger:2026")
	jobs := []func(context.Context, *lock.Mutex) error{report, book, book, book, book}
	failed := make([]error, len(jobs))
	var all sync.WaitGroup
	for i, job := range jobs {
		all.Go(func() {
			for range rounds {
				failed[i] = errors.Join(failed[i], job(ctx, m))
			}
		})
	}
	all.Wait()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(errors.Join(failed...), lockprofile.Write(f, locks), f.Close())
}

func main() {
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: contention FILE")
	}
	mini, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	err = errors.Join(run(context.Background(), rdb, flag.Arg(0)), rdb.Close())
	mini.Close()
	if err != nil {
		log.Fatal(err)
	}
}
