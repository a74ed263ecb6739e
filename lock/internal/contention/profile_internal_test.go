package contention

import (
	"testing"
	"time"
)

// A call that has to wait for mu takes the time after it has got mu. With the time before, a wait would become shorter
// than a Snapshot has shown it, or a hold would end before others began to wait for it.
func TestTimeOfACallThatWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	p := New(1)
	// late makes a call, which waits while meanwhile happens.
	late := func(call, meanwhile func()) {
		done := make(chan struct{})
		p.mu.Lock()
		go func() {
			defer close(done)
			call()
		}()
		time.Sleep(20 * time.Millisecond) // if it hasn't come to mu by then, the test proves nothing, but doesn't fail
		meanwhile()
		p.mu.Unlock()
		<-done
	}

	s := p.Sample("g", "mutex")
	var shown time.Time
	s.WaitStart("a")
	late(func() { s.Granted("a") }, func() { shown = time.Now() })
	if s.heldSince.Before(shown) {
		t.Errorf("the wait ends %v before it was seen to last", shown.Sub(s.heldSince))
	}
	late(s.End, func() { s.contend(time.Now()) })
	if s.site.Hold < 0 {
		t.Errorf("others waited for %v", s.site.Hold)
	}
}
