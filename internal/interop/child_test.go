//go:build interop

package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
)

// Processes with lockdog are this test binary, started again. They speak the protocol of java's Main, as far as the tests
// need it. The environment has the addresses and the lease.
const childEnv = "LOCKDOG_INTEROP_CHILD"

func launchGo(t *testing.T, addrs []string, watchdog time.Duration) *peer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(addrs, ",")+" "+watchdog.String())
	return launch(t, cmd)
}

func init() {
	config := os.Getenv(childEnv)
	if config == "" {
		return
	}
	if err := serve(strings.Fields(config)); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve answers calls until stdin ends.
func serve(config []string) error {
	watchdog, err := time.ParseDuration(config[1])
	if err != nil {
		return err
	}
	addrs := strings.Split(config[0], ",")
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: len(addrs) > 1})
	locks, err := lock.New(rdb, lock.WithKeyPrefix(prefix), lock.WithLease(watchdog))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	say("ready lockdog %d", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		go func() {
			if result, err := run(rdb, locks, words); err != nil {
				say("%s failed %T: %v", words[0], err, err)
			} else {
				say("%s ok %s", words[0], result)
			}
		}()
	}
	return lines.Err()
}

// run does what `<call> <thread> <operation> <kind> <name> [<argument>...]` says. Kinds are called as in kinds.
func run(rdb redis.UniversalClient, locks *lock.Client, words []string) (string, error) {
	ctx, operation, name, args := context.Background(), words[2], words[4], words[5:]
	if words[3] == "latch" {
		return meet(ctx, rdb, locks, name, args)
	}
	k := kindNamed(words[3])
	if k == nil {
		return "", fmt.Errorf("no such kind: %s", words[3])
	}
	switch operation {
	case "lock", "acquire": // and hold it until the end
		_, err := k.open(locks, name).take(ctx, true)
		return "taken", err
	case "contend":
		return contend(ctx, rdb, k.open(locks, name), prefix+name+":inside", args)
	default:
		return "", fmt.Errorf("no such operation: %s", operation)
	}
}

// contend is what java's Contention does, but for latches.
func contend(ctx context.Context, rdb redis.UniversalClient, o ours, inside string, args []string) (string, error) {
	var ms, weight, most, rest int64
	if _, err := fmt.Sscan(strings.Join(args, " "), &ms, &weight, &most, &rest); err != nil {
		return "", err
	}
	var turns, crowds int
	var longest time.Duration
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	for asked := time.Now(); asked.Before(end); asked = time.Now() {
		h, err := o.take(ctx, true)
		if err != nil {
			return "", err
		}
		longest = max(longest, time.Since(asked))
		n, err := rdb.IncrBy(ctx, inside, weight).Result()
		if err != nil {
			return "", err
		}
		if n > most {
			crowds++
		}
		if err := rdb.DecrBy(ctx, inside, weight).Err(); err != nil {
			return "", err
		}
		turns++
		if err := h.release(ctx); err != nil {
			return "", err
		}
		time.Sleep(time.Duration(rest) * time.Millisecond)
	}
	return fmt.Sprintf("%d %d %d", turns, crowds, longest.Milliseconds()), nil
}

// meet is what that of java's Contention is.
func meet(ctx context.Context, rdb redis.UniversalClient, locks *lock.Client, name string, args []string) (string, error) {
	var rounds, parties int
	if _, err := fmt.Sscan(strings.Join(args, " "), &rounds, &parties); err != nil {
		return "", err
	}
	var early int
	var longest time.Duration
	for round := range rounds {
		latch, arrived := locks.Latch(fmt.Sprintf("%s:%d", name, round)), fmt.Sprintf("%s%s:%d:arrived", prefix, name, round)
		if _, err := latch.TrySetCount(ctx, parties); err != nil {
			return "", err
		}
		asked := time.Now()
		if err := rdb.Incr(ctx, arrived).Err(); err != nil {
			return "", err
		}
		if err := latch.CountDown(ctx); err != nil {
			return "", err
		}
		if err := latch.Wait(ctx); err != nil {
			return "", err
		}
		longest = max(longest, time.Since(asked))
		n, err := rdb.Get(ctx, arrived).Int()
		if err != nil {
			return "", err
		}
		if n != parties {
			early++
		}
	}
	return fmt.Sprintf("%d %d %d", rounds, early, longest.Milliseconds()), nil
}
