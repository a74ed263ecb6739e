//go:build interop

package interop_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// remote is a lock as another process sees it.
type remote struct {
	p          *peer
	kind, name string
}

// as is the same name as another kind of Java's: a read lock's write lock, say. "" is the kind that it is.
func (l remote) as(kind string) remote {
	if kind != "" {
		l.kind = kind
	}
	return l
}

// send has a thread of the other process call the operation. Each lock has threads of its own, so that tests which run at
// the same time don't wait for each other's.
func (l remote) send(t *testing.T, thread, operation string, args ...any) *call {
	t.Helper()
	return l.p.send(t, l.name+"/"+thread, operation, l.kind, l.name, args...)
}

// call waits for the result.
func (l remote) call(t *testing.T, thread, operation string, args ...any) string {
	t.Helper()
	return l.send(t, thread, operation, args...).result(t, callLimit)
}

// says fails the test unless that is the result.
func (l remote) says(t *testing.T, want any, thread, operation string, args ...any) {
	t.Helper()
	if got := l.call(t, thread, operation, args...); got != fmt.Sprint(want) {
		t.Fatalf("%s by %s: %s, want %v", operation, thread, got, want)
	}
}

// throws fails the test unless that is the exception.
func (l remote) throws(t *testing.T, exception, thread, operation string, args ...any) {
	t.Helper()
	verdict, text := l.send(t, thread, operation, args...).wait(t, callLimit)
	if verdict != "failed" || !strings.HasPrefix(text, exception+":") {
		t.Fatalf("%s by %s: %s %s, want %s", operation, thread, verdict, text, exception)
	}
}

// take waits until the thread has it: a lock, or a permit, for a lease that isn't renewed unless that is 0. The result is what free
// wants to be told.
func (l remote) take(t *testing.T, thread string, lease time.Duration) *call {
	t.Helper()
	switch {
	case l.kind == "semaphore":
		return l.send(t, thread, "acquire", 1)
	case l.kind == "permits" && lease == 0:
		return l.send(t, thread, "acquire")
	case l.kind == "permits":
		return l.send(t, thread, "acquire", lease.Milliseconds())
	case lease == 0:
		return l.send(t, thread, "lock")
	}
	return l.send(t, thread, "lock", lease.Milliseconds())
}

// taken is take, and waits for it.
func (l remote) taken(t *testing.T, thread string, lease time.Duration) string {
	t.Helper()
	return l.take(t, thread, lease).result(t, callLimit)
}

// try takes it if it is free.
func (l remote) try(t *testing.T, thread string) (receipt string, ok bool) {
	t.Helper()
	switch l.kind {
	case "semaphore":
		receipt = l.call(t, thread, "tryAcquire", 1)
	case "permits":
		receipt = l.call(t, thread, "tryAcquire")
	default:
		receipt = l.call(t, thread, "tryLock")
	}
	return receipt, receipt != "false" && receipt != "null"
}

// tryFor waits for a time that is too short.
func (l remote) tryFor(t *testing.T, thread string, wait time.Duration) bool {
	t.Helper()
	var answer string
	switch l.kind {
	case "semaphore":
		answer = l.call(t, thread, "tryAcquire", 1, wait.Milliseconds())
	case "permits":
		answer = l.call(t, thread, "tryAcquire", wait.Milliseconds(), -1)
	default:
		answer = l.call(t, thread, "tryLock", wait.Milliseconds(), -1)
	}
	return answer != "false" && answer != "null"
}

// free gives back what the thread took.
func (l remote) free(t *testing.T, thread, receipt string) {
	t.Helper()
	switch l.kind {
	case "semaphore":
		l.call(t, thread, "release", 1)
	case "permits":
		l.call(t, thread, "release", receipt)
	default:
		l.call(t, thread, "unlock")
	}
}

// remaining is Redisson's remainTimeToLive.
func (l remote) remaining(t *testing.T) time.Duration {
	t.Helper()
	ms, err := strconv.ParseInt(l.call(t, "asker", "remainTimeToLive"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// owner is what names that thread in Redis.
func (l remote) owner(t *testing.T, thread string) string {
	t.Helper()
	owner := l.p.client() + ":" + l.as("lock").call(t, thread, "threadId")
	if l.kind == "write" {
		owner += ":write"
	}
	return owner
}
