package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// output is written by several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) count(text string) int { return strings.Count(o.String(), text) }

// All three are told of the deadlock, and none gets done until it is ended.
func TestDeadlock_Lasts(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	ctx, cancel := context.WithCancel(t.Context())
	var out output
	args := []string{"-redis", redistest.Start(t).Addr(), "-pause", "3s"}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, args, &out) }()
	tick, limit := time.NewTicker(50*time.Millisecond), time.After(25*time.Second) // a wait takes 30 s
	defer tick.Stop()
	for out.count(" WRN deadlock ") < 3 {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not told:\n%s", &out)
		}
	}
	if out.count("broken=true") > 0 || out.count(" INF done ") > 0 {
		t.Errorf("want none broken, none done:\n%s", &out)
	}
	cancel() // whoever sees that last may get what the others give back
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if out.count(" WRN deadlock ") != 3 {
		t.Errorf("want 3 told:\n%s", &out)
	}
}

// With -break all get done, one of them at its second try. Who sees the deadlock only when it is broken isn't told of it.
func TestDeadlock_Broken(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	var out output
	if err := run(t.Context(), []string{"-redis", redistest.Start(t).Addr(), "-pause", "3s", "-break"}, &out); err != nil {
		t.Error(err)
	}
	if told := out.count(" WRN deadlock "); told < 1 || told > 3 || out.count("broken=true") != 1 || out.count(" INF done ") != 3 {
		t.Errorf("want 1 to 3 told, 1 broken, 3 done:\n%s", &out)
	}
}
