//go:build interop

package interop_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

const (
	contendersEach = 4 // processes of each side
	threadsEach    = 2 // of each process, so that turns within a process are in it
	// Long enough for a process that gets no CPU for a while: the lock is allowed to be lost then, which isn't what is tested.
	contendLease = 5 * time.Second
)

// contest is what all contend for.
type contest struct {
	name    string
	permits int
	threads [threadsEach]contender
}

// contender is what one thread of each process takes. It weighs something, and all that hold it at once weigh no more than most. After each
// turn it rests for some ms.
type contender struct {
	*kind
	weight, most, rest int
}

func contests() []contest {
	const permits = 3
	var all []contest
	for _, name := range []string{"lock", "fenced", "fair"} {
		one := contender{kindNamed(name), 1, 1, 0}
		all = append(all, contest{name, 0, [...]contender{one, one}})
	}
	// A writer weighs more than any number of readers. Readers rest, as those of Redisson go past writers that wait.
	all = append(all, contest{"read-write", 0, [...]contender{{kindNamed("write"), 1000, 1000, 0}, {kindNamed("read-write"), 1, 999, 50}}})
	for _, name := range []string{"semaphore", "permits"} {
		one := contender{kindNamed(name), 1, permits, 0}
		all = append(all, contest{name, permits, [...]contender{one, one}})
	}
	return all
}

// arena is where processes of both sides contend.
type arena struct {
	*rig
	sides map[string][]*peer
}

// TestContention has processes of both sides take one of each kind from each other all the time. Nobody may be in there with another, or
// with more than there are permits.
func TestContention(t *testing.T) {
	all := contests()
	d := contendFor(t) / time.Duration(len(all)+1)
	for _, shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			a := newArena(t, shape)
			for _, c := range all {
				t.Run(c.name, func(t *testing.T) { a.contend(t, c, d) })
			}
			t.Run("latch", func(t *testing.T) { a.meet(t, d) })
		})
	}
}

func newArena(t *testing.T, shape string) *arena {
	t.Helper()
	a := &arena{&rig{}, map[string][]*peer{}}
	a.universal, a.nodes = startRedis(t, shape)
	for range contendersEach {
		a.sides["Redisson"] = append(a.sides["Redisson"], launchJava(t, a.universal.Addrs, prefix, contendLease))
		a.sides["lockdog"] = append(a.sides["lockdog"], launchGo(t, a.universal.Addrs, contendLease))
	}
	a.rdb = redistest.Open(t, a.universal)
	a.locks = newLocks(t, a.rdb)
	for _, peers := range a.sides {
		for _, p := range peers {
			p.ready(t)
		}
	}
	return a
}

func (a *arena) contend(t *testing.T, c contest, d time.Duration) {
	if c.permits > 0 {
		set(t, c.threads[0].open(a.locks, c.name), c.permits)
	}
	asked := a.ask(t, c, func(one contender) []any { return []any{d.Milliseconds(), one.weight, one.most, one.rest} })
	turns := map[string][]int{"Redisson": make([]int, contendersEach), "lockdog": make([]int, contendersEach)}
	longest := map[string]int{}
	total := 0
	for _, one := range asked {
		var n, crowds, wait int
		answer := one.result(t, d+callLimit)
		if _, err := fmt.Sscan(answer, &n, &crowds, &wait); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		if crowds > 0 {
			t.Errorf("%s's process %d wasn't alone in %d of %d turns", one.side, one.process, crowds, n)
		}
		turns[one.side][one.process] += n
		longest[one.side] = max(longest[one.side], wait)
		total += n
	}
	t.Logf("%d turns in %v, %.0f/s", total, d, float64(total)/d.Seconds())
	for side, served := range turns {
		sum := 0
		for i, n := range served {
			sum += n
			if n == 0 {
				t.Errorf("%s's process %d never had its turn", side, i)
			}
		}
		t.Logf("%s: %.0f %% of the turns, %v by process, longest wait %d ms", side, 100*float64(sum)/float64(total), served, longest[side])
	}
	if c.permits > 0 {
		a.has(t, c.name, c.permits)
		return
	}
	for _, one := range c.threads {
		a.leavesNothing(t, one.kind, c.name)
	}
}

// asked is what a thread of a process was told to do.
type asked struct {
	side    string
	process int
	*call
}

// ask has every thread of every process contend, with these arguments.
func (a *arena) ask(t *testing.T, c contest, args func(contender) []any) []asked {
	t.Helper()
	var all []asked
	for side, peers := range a.sides {
		for i, p := range peers {
			for n, one := range c.threads {
				kind := one.name
				if side == "Redisson" {
					kind = remote{kind: one.java}.as(one.same).kind // the same as lockdog
				}
				all = append(all, asked{side, i, p.send(t, fmt.Sprint(n), "contend", kind, c.name, args(one)...)})
			}
		}
	}
	return all
}

// meet has all threads meet again and again, at a latch that each counts down by one: nobody may go on before all have come.
func (a *arena) meet(t *testing.T, d time.Duration) {
	const perSecond = 20 // how often it is sure to work out
	rounds := max(1, int(d.Seconds()*perSecond))
	parties := 2 * contendersEach * threadsEach
	one := contender{kind: &kind{name: "latch", java: "latch"}}
	c := contest{"latch", 0, [...]contender{one, one}}
	began := time.Now()
	longest := 0
	for _, one := range a.ask(t, c, func(contender) []any { return []any{rounds, parties} }) {
		var n, early, wait int
		answer := one.result(t, d+callLimit)
		if _, err := fmt.Sscan(answer, &n, &early, &wait); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		if early > 0 {
			t.Errorf("%s's process %d went on in %d of %d rounds before all had come", one.side, one.process, early, n)
		}
		longest = max(longest, wait)
	}
	took := time.Since(began)
	t.Logf("%d threads met %d times in %v, longest wait %d ms", parties, rounds, took.Round(time.Millisecond), longest)
}

// contendFor is for how long, in each shape: 30 s, or what INTEROP_SECONDS says. All kinds share it.
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
