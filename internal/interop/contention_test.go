//go:build interop

package interop_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	contendersEach = 4 // processes of each side
	threadsEach    = 2 // of each process, so that turns within a process are in it
	// Long enough for a process that gets no CPU for a while: the lock is allowed to be lost then, which isn't what is tested.
	contendLease = 5 * time.Second
)

// TestContention has processes of both sides take one lock from each other all the time. Nobody may be in there with another.
func TestContention(t *testing.T) {
	d := contendFor(t)
	for _, shape := range shapes {
		t.Run(shape, func(t *testing.T) { testContention(t, shape, d) })
	}
}

func testContention(t *testing.T, shape string, d time.Duration) {
	universal, _ := startRedis(t, shape)
	addrs := universal.Addrs
	sides := map[string][]*peer{}
	for range contendersEach {
		sides["Redisson"] = append(sides["Redisson"], launchJava(t, addrs, prefix, contendLease))
		sides["lockdog"] = append(sides["lockdog"], launchGo(t, addrs, contendLease))
	}
	for _, peers := range sides {
		for _, p := range peers {
			p.ready(t)
		}
	}

	type contender struct {
		side    string
		process int
		*call
	}
	var contenders []contender
	for side, peers := range sides {
		for i, p := range peers {
			for thread := range threadsEach {
				c := p.send(t, fmt.Sprint(thread), "contend", "lock", "contended", d.Milliseconds())
				contenders = append(contenders, contender{side, i, c})
			}
		}
	}

	turns := map[string][]int{"Redisson": make([]int, contendersEach), "lockdog": make([]int, contendersEach)}
	longest := map[string]int{}
	total := 0
	for _, c := range contenders {
		var n, doubles, wait int
		answer := c.result(t, d+callLimit)
		if _, err := fmt.Sscan(answer, &n, &doubles, &wait); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		if doubles > 0 {
			t.Errorf("%s's process %d wasn't alone in %d of %d turns", c.side, c.process, doubles, n)
		}
		turns[c.side][c.process] += n
		longest[c.side] = max(longest[c.side], wait)
		total += n
	}
	t.Logf("%d turns in %v, %.0f/s", total, d, float64(total)/d.Seconds())
	for side, served := range turns {
		sum := 0
		for i, n := range served {
			sum += n
			if n == 0 {
				t.Errorf("%s's process %d never had the lock", side, i)
			}
		}
		t.Logf("%s: %.0f %% of the turns, %v by process, longest wait %d ms", side, 100*float64(sum)/float64(total), served, longest[side])
	}
}

// contendFor is for how long, in each shape: 30 s, or what INTEROP_SECONDS says.
func contendFor(t *testing.T) time.Duration {
	t.Helper()
	const env = "INTEROP_SECONDS"
	text, set := os.LookupEnv(env)
	if !set {
		return 30 * time.Second
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 1 {
		t.Fatalf("%s=%q is no number of seconds", env, text)
	}
	return time.Duration(seconds) * time.Second
}
