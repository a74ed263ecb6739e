//go:build interop

package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
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
	locks, err := lock.New(rdb, lock.WithKeyPrefix(prefix), lock.WithWatchdog(watchdog))
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

// run does what `<call> <thread> <operation> <kind> <name> [<number>]` says.
func run(rdb redis.UniversalClient, locks *lock.Client, words []string) (string, error) {
	ctx, name := context.Background(), words[4]
	switch words[2] {
	case "lock":
		_, err := locks.Mutex(name).Lock(ctx)
		return "locked", err
	case "contend":
		ms, err := strconv.Atoi(words[5])
		if err != nil {
			return "", err
		}
		return contend(ctx, rdb, locks.Mutex(name), prefix+name+":inside", time.Duration(ms)*time.Millisecond)
	default:
		return "", fmt.Errorf("no such operation: %s", words[2])
	}
}

// contend is what java's Operations.contend is.
func contend(ctx context.Context, rdb redis.UniversalClient, m *lock.Mutex, inside string, d time.Duration) (string, error) {
	var turns, doubles int
	var longest time.Duration
	end := time.Now().Add(d)
	for asked := time.Now(); asked.Before(end); asked = time.Now() {
		l, err := m.Lock(ctx)
		if err != nil {
			return "", err
		}
		longest = max(longest, time.Since(asked))
		n, err := rdb.Incr(ctx, inside).Result()
		if err != nil {
			return "", err
		}
		if n != 1 {
			doubles++
		}
		if err := rdb.Decr(ctx, inside).Err(); err != nil {
			return "", err
		}
		turns++
		if err := l.Release(ctx); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d %d %d", turns, doubles, longest.Milliseconds()), nil
}
