package pubsub

import (
	"slices"
	"testing"
)

type told struct{ what []string }

func (l *told) Up()            { l.what = append(l.what, "up") }
func (l *told) Down()          { l.what = append(l.what, "down") }
func (l *told) Message(string) { l.what = append(l.what, "message") }

func TestSubscription_Transitions(t *testing.T) {
	t.Parallel()
	type result struct {
		to   state
		told string // "": nothing
	}
	const up, down = "up", "down"
	table := map[event]map[state]result{ // whatever isn't in it changes nothing
		sent: {pending: {requested, ""}},
		acknowledged: {
			pending: {subscribed, up}, requested: {subscribed, up}, rejected: {subscribed, up},
			subscribed: {subscribed, up}, leaving: {subscribed, up},
		},
		refused:   {requested: {rejected, down}},
		ended:     {subscribed: {rejected, down}, leaving: {rejected, down}},
		retried:   {rejected: {pending, ""}},
		leaves:    {subscribed: {leaving, down}},
		stays:     {leaving: {subscribed, up}},
		relocated: {pending: {pending, ""}, requested: {pending, ""}, subscribed: {pending, down}, leaving: {pending, ""}, rejected: {pending, ""}},
		disconnected: {
			pending: {pending, down}, requested: {pending, down}, subscribed: {pending, down}, leaving: {pending, down}, rejected: {pending, down},
		},
	}
	for e := sent; e <= disconnected; e++ {
		for from := pending; from <= rejected; from++ {
			for _, before := range []bool{false, true} {
				l := &told{}
				sub := &subscription{listeners: []Listener{l}, state: from, refused: before}
				want, applies := table[e][from]
				wantTold, wantRefused := []string(nil), before
				switch {
				case !applies:
					want.to = from
				case e == acknowledged, e == relocated, e == disconnected:
					wantRefused = false
				case e == refused:
					wantRefused = true
				}
				if want.told != "" {
					wantTold = []string{want.told}
				}
				if did := sub.on(e); did != applies || sub.state != want.to || sub.refused != wantRefused || !slices.Equal(l.what, wantTold) {
					t.Errorf("event %d in state %d: %v, state %d, refused %v, told %q; want %v, state %d, refused %v, told %q",
						e, from, did, sub.state, sub.refused, l.what, applies, want.to, wantRefused, wantTold)
				}
			}
		}
	}
}
