package main

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/load"
)

// TestAgreeOnBusyMachine: the counts agree even when Redis and a client are read at different times. The client is stopped while
// Redis is read, and then has renewals to send before it is read.
func TestAgreeOnBusyMachine(t *testing.T) {
	t.Parallel()
	f, err := parse([]string{"-locks", "300", "-lease", "12s", "-clients", "1", "-foreground", "0"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := openBench(t.Context(), f, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	h := &holders{b: b, mode: load.PerLock, locks: 300}
	defer func() {
		if err := h.fleet.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := h.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.fleet[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := time.AfterFunc(f.interval(), func() { _ = h.fleet[0].Signal(syscall.SIGCONT) })
	_, err = h.look(t.Context())
	goOn.Stop()
	err = errors.Join(err, h.fleet[0].Signal(syscall.SIGCONT)) // also where it answered before the stop reached it
	if err := errors.Join(err, h.release(t.Context())); err != nil {
		t.Fatal(err)
	}
	if received, own, ok := h.agree(); !ok || own < 600 {
		t.Errorf("Redis %d, clients %d", received, own)
	}
}
