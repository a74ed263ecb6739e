package changes

import (
	"fmt"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
)

// Sentence describes the event, without its time and the name of the lock. The text is safe for a terminal.
func (e *Event) Sentence() string {
	was, is := &e.Was, &e.Is
	expired := ""
	if e.MayHaveExpired {
		expired = "; its lease may have run out"
	}
	before := func() string {
		since := text.Since(was.Lock)
		if since.IsZero() {
			return text.Holder(was.Lock) + " held it"
		}
		return text.Holder(was.Lock) + " held it for " + text.Age(since, e.At)
	}
	switch e.What {
	case Held:
		return "held by " + text.Holder(is.Lock)
	case Acquired:
		return "acquired by " + text.Holder(is.Lock)
	case HandOver:
		from, to := text.Holder(was.Lock), text.Holder(is.Lock)
		if from == to {
			return "acquired again by " + to + expired
		}
		return "handed over from " + from + " to " + to + expired
	case Holders:
		return "now held by " + text.Holder(is.Lock) + ", before by " + text.Holder(was.Lock)
	case Gone:
		return "free; " + before() + expired
	case LeaseOver:
		return "LEASE OVER, not renewed; " + before()
	case WaitBegan:
		return fmt.Sprintf("%d waiting", is.Waiting)
	case WaitEnded:
		return "nobody waits any more"
	}
	return string(e.What)
}
