package lock

import (
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/deadlock"
)

// controlPrefix, after the key prefix, starts the channel on which a client's holders are told to look after their
// leases.
const controlPrefix = "lockdog:control:"

// watchControl listens for forced unlocks of what is held where key lives.
func (c *Client) watchControl(key string) {
	at := c.backend.Control(key)
	if _, ok := c.controls.Load(at); ok {
		return
	}
	if _, ok := c.controls.LoadOrStore(at, true); !ok {
		c.pubsub.Control(at, c.cfg.prefix+controlPrefix+c.ownerHead[:len(c.ownerHead)-1], controller{c})
	}
}

// watchElsewhere is watchControl for what is held, after the server of a control channel has gone: its keys are at others.
func (c *Client) watchElsewhere(gone backend.Endpoint) {
	c.controls.Delete(gone)
	c.grants.each(func(g *grant) { c.watchControl(g.lock.key) })
}

// controller is the listener of a control channel. A message names an owner whose lock was taken away, and may say after it who did
// that. It is not believed: the watchdog looks. If the lock is gone indeed, that is then why.
type controller struct{ c *Client }

// forcedBy stands between the owner and who took the lock away, as in forced.lua.
const forcedBy = " forced by "

func (controller) Up()   {}
func (controller) Down() {}

func (ct controller) Message(text string) {
	if text == deadlock.Notification {
		ct.c.graph.Notified()
		return
	}
	ct.c.grants.each(func(g *grant) {
		rest, ok := strings.CutPrefix(text, g.claim.owner)
		by, forced := strings.CutPrefix(rest, forcedBy)
		if !ok || rest != "" && !forced {
			return
		}
		if forced {
			g.noteForced(by)
		}
		ct.c.renewer.Verify(&g.wd)
	})
}
