package pubsub

// state is the state of a subscription at the server, over the present connection.
//
//	           SUBSCRIBE sent               acknowledged                its slot leaves
//	pending ──────────────────▶ requested ────────────────▶ subscribed ─────────────────▶ leaving
//	   ▲                            │                           │  ▲                        │ │
//	   │                            │ refused                   │  └────────────────────────┘ │
//	   │ retried after a pause      ▼                           │   its slot stays after all  │
//	   └─────────────────────── rejected ◀──────────────────────┴─────────────────────────────┘
//	                                      ended by the server: the slot has moved
//
// A refusal doesn't name its channel, so it rejects all requested subscriptions. If one of them is acknowledged after
// all, it is subscribed. A lost connection, or a move to another node, leads from every state back to pending.
//
// Only in the state subscribed are all messages received. While a slot leaves, and until the new layout is known, some
// messages may be published at the node that the slot moves to.
type state uint8

const (
	pending state = iota
	requested
	subscribed
	leaving // subscribed, but the slot is being moved to another node, or has been
	rejected
)

// event is what happens to a subscription.
type event uint8

const (
	sent         event = iota // SUBSCRIBE
	acknowledged              // by the server
	refused                   // by the server
	ended                     // by the server, without an UNSUBSCRIBE
	retried                   // the pause after a rejection is over
	leaves                    // a check has found that the channel's slot is being moved to another node, or has been
	stays                     // a check has found that it isn't
	relocated                 // the channel lives on another node
	disconnected
)

// subscription is one channel. Without listeners it is about to be unsubscribed. Mux.mu guards it.
type subscription struct {
	channel   string
	listeners []Listener
	control   bool // it stays at its endpoint, and a late message does no harm
	state     state
	refused   bool // it was refused over this connection, and not acknowledged since
}

// on changes the state for an event, and calls Up or Down of the listeners if that is due. It reports false if the
// event means nothing in this state.
func (sub *subscription) on(e event) bool {
	was := sub.state
	switch {
	case e == sent && was == pending:
		sub.state = requested
	case e == acknowledged:
		sub.state, sub.refused = subscribed, false
		sub.tell(Listener.Up)
	case e == refused && was == requested:
		sub.state, sub.refused = rejected, true
		sub.tell(Listener.Down)
	case e == leaves && was == subscribed:
		sub.state = leaving
		sub.tell(Listener.Down)
	case e == stays && was == leaving:
		sub.state = subscribed
		sub.tell(Listener.Up)
	case e == ended && sub.held(): // otherwise it answers an UNSUBSCRIBE that was sent before the last SUBSCRIBE
		sub.state = rejected
		sub.tell(Listener.Down)
	case e == retried && was == rejected:
		sub.state = pending
	case e == relocated:
		sub.state, sub.refused = pending, false
		if was == subscribed {
			sub.tell(Listener.Down)
		}
	case e == disconnected:
		sub.state, sub.refused = pending, false
		sub.tell(Listener.Down)
	default:
		return false
	}
	return true
}

// held reports whether the server has the subscription.
func (sub *subscription) held() bool { return sub.state == subscribed || sub.state == leaving }

func (sub *subscription) tell(what func(Listener)) {
	for _, l := range sub.listeners {
		what(l)
	}
}
