package memory_test

import (
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// What is published for a client that doesn't listen yet to its control channel waits for it, and nothing else does.
func TestControlMessagesWait(t *testing.T) {
	t.Parallel()
	const channel = "app:lockdog:control:me:1"
	m := newMem(t)
	m.run("{0, 0}", `return {redis.call('publish', '`+channel+`', 'me:1-1 forced by you'), redis.call('publish', 'other', 'x')}`)
	sub, err := m.Backend().Subscribe(t.Context(), backend.Endpoint{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Close() }()
	if err := sub.Subscribe(t.Context(), channel, "other"); err != nil {
		t.Fatal(err)
	}
	m.run("{1}", `return {redis.call('publish', '`+channel+`', 'later')}`)
	var messages []string
	for range 4 {
		ev, err := sub.Receive(t.Context(), time.Second)
		if err != nil {
			t.Fatalf("after %q: %v", messages, err)
		}
		if ev.Kind == backend.Message {
			messages = append(messages, ev.Payload)
		}
	}
	if len(messages) != 2 || messages[0] != "me:1-1 forced by you" || messages[1] != "later" {
		t.Errorf("it got %q", messages)
	}
}
