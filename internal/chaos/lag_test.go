//go:build chaos

package chaos_test

import (
	"sync"
	"time"
)

// lag measures how late timers of this process are: what the machine, or this process, has no time for.
type lag struct {
	mu   sync.Mutex
	late []lateness
}

type lateness struct {
	at time.Time // when the timer went off
	by time.Duration
}

const (
	lagEvery = 5 * time.Millisecond
	lagLeast = 2 * time.Millisecond // what is remembered
)

// measure starts to. The process must not run it twice.
func (l *lag) measure() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(lagEvery)
		defer timer.Stop()
		for {
			due := time.Now().Add(lagEvery)
			timer.Reset(lagEvery)
			select {
			case <-timer.C:
			case <-done:
				return
			}
			if by := time.Since(due); by >= lagLeast {
				l.mu.Lock()
				l.late = append(l.late, lateness{due.Add(by), by})
				l.mu.Unlock()
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// since is the longest lag since t.
func (l *lag) since(t time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, late := range l.late {
		if late.at.After(t) {
			longest = max(longest, late.by)
		}
	}
	return longest
}
