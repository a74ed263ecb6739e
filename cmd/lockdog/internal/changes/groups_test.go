package changes

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock/fleet"
)

var began = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// lookWith is a look some seconds after the first, which finds so many waiting for each lock.
func lookWith(second int, waiting map[string]int) Look {
	at := began.Add(time.Duration(second) * time.Second)
	look := Look{Began: at, Ended: at}
	for name, n := range waiting {
		look.Locks = append(look.Locks, Seen{At: at, Lock: fleet.Lock{Name: name, Key: name, Held: 1, Waiting: n, Holders: []fleet.Holder{{Owner: "o"}}}})
	}
	return look
}

func wantGroups(t *testing.T, tracker *Tracker, want ...Caused) {
	t.Helper()
	got, since := tracker.Groups(10)
	if fmt.Sprint(got) != fmt.Sprint(want) || !since.Equal(began) {
		t.Errorf("got %v since %v, want %v", got, since, want)
	}
}

func TestTracker_Groups(t *testing.T) {
	t.Parallel()
	var tracker Tracker
	tracker.Add(lookWith(0, map[string]int{"orders:1": 2, "idle:1": 0, "{stock}:7": 1}))
	wantGroups(t, &tracker, Caused{"orders", 0, 2}, Caused{"stock", 0, 1})

	tracker.Add(lookWith(10, map[string]int{"orders:1": 2, "orders:2": 1, "idle:1": 0, "{stock}:7": 3}))
	// 2 for 10 s, and one that came half-way; from 1 to 3 in 10 s.
	wantGroups(t, &tracker, Caused{"orders", 25 * time.Second, 3}, Caused{"stock", 20 * time.Second, 3})

	tracker.Add(lookWith(20, map[string]int{"orders:1": 2, "backup": 2}))
	wantGroups(t, &tracker, Caused{"orders", 50 * time.Second, 2}, Caused{"stock", 35 * time.Second, 0}, Caused{"default", 10 * time.Second, 2})

	// What an incomplete look misses counts when it is seen again.
	missed := lookWith(30, map[string]int{"backup": 2})
	missed.Err = errors.New("a node is down")
	tracker.Add(missed)
	wantGroups(t, &tracker, Caused{"orders", 50 * time.Second, 0}, Caused{"stock", 35 * time.Second, 0}, Caused{"default", 30 * time.Second, 2})
	tracker.Add(lookWith(40, map[string]int{"orders:1": 2, "backup": 0}))
	wantGroups(t, &tracker, Caused{"orders", 90 * time.Second, 2}, Caused{"default", 40 * time.Second, 0}, Caused{"stock", 35 * time.Second, 0})
	if some, _ := tracker.Groups(1); len(some) != 1 || some[0].Group != "orders" {
		t.Errorf("the first: %v", some)
	}
}

// Groups are names in Redis, which may be many.
func TestTracker_Groups_Bounded(t *testing.T) {
	t.Parallel()
	tracker := Tracker{waits: waitTime{most: 3}}
	for second := range 20 {
		tracker.Add(lookWith(second, map[string]int{fmt.Sprintf("group-%02d:1", second): 1}))
	}
	got, _ := tracker.Groups(100)
	if len(got) != 4 || got[0].Group != others {
		t.Errorf("%v", got)
	}
	var sum time.Duration
	for _, g := range got {
		sum += g.Waited
	}
	if want := 19 * time.Second; sum != want { // half a second for each that came, and for each that went
		t.Errorf("%v in all, want %v", sum, want)
	}
}
