package lock

import (
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/deadlock"
)

// controlPrefix begins the name of a client's control channel, after the key prefix. See controller for the messages.
const controlPrefix = "lockdog:control:"

// watchControl listens on the client's control channel, at a server where the message of a ForceUnlock of that key
// arrives: the key's server or, in a Cluster whose nodes pass messages on, any node.
func (c *Client) watchControl(key string) {
	at := c.backend.Control(key)
	if _, ok := c.controls.Load(at); ok {
		return
	}
	if _, ok := c.controls.LoadOrStore(at, true); !ok {
		c.pubsub.Control(at, c.cfg.prefix+controlPrefix+c.ownerHead[:len(c.ownerHead)-1], controller{c})
	}
}

// watchElsewhere is called when a node of a Cluster is gone and the client listened on its control channel there. It
// calls watchControl for all held locks, so that the client listens at another node.
func (c *Client) watchElsewhere(gone backend.Endpoint) {
	c.controls.Delete(gone)
	c.grants.each(func(g *grant) { c.watchControl(g.lock.key) })
}

// controller listens to a control channel. A message is deadlock.Notification, or the owner of a lock that was taken
// away. After the owner it may name the client that took the lock away. A message with an owner isn't believed: the
// watchdog checks the lease by a renewal, unless the lease isn't renewed. If the lock turns out to be missing or taken,
// and a client was named, the cause of the loss is CauseForced.
type controller struct{ c *Client }

// forcedBy is between the owner and the client that took the lock away, as in forced.lua.
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
