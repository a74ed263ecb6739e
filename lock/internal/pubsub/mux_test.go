package pubsub_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// redisError is an answer of the server.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")

const (
	forbidden = redisError("NOPERM no permissions to access the channel")
	notReady  = redisError("CLUSTERDOWN The cluster is down")
)

// bubble runs a test in a bubble of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// after waits in fake time, until nothing more happens.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// The contract: a listener that is up hears every message, except those that are lost while a connection is silent, until
// that is noticed: then it is told that it is down. It comes up again when the servers work.
func TestMux_NoMessageIsMissedWhileUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			s := newServers()
			m, _ := newMux(t, s)
			channels, nodes := []string{"c1", "c2", "c3"}, []string{"a", "b"}
			listeners := make(map[*listener]string)
			silent := false
			for step := range 60 {
				channel := channels[rng.IntN(len(channels))]
				switch rng.IntN(9) {
				case 0, 1:
					l := &listener{}
					listeners[l] = channel
					m.Listen(channel, l)
				case 2:
					for l, channel := range listeners {
						m.Unlisten(channel, l)
						delete(listeners, l)
						break
					}
				case 3:
					s.cut()
				case 4:
					s.move(channel, nodes[rng.IntN(len(nodes))])
				case 5:
					s.with(func() { s.refusal = []error{nil, forbidden, notReady}[rng.IntN(3)] })
				case 6:
					silent = rng.IntN(3) == 0
					s.with(func() { s.silent = silent })
					if !silent { // what was not answered meanwhile is lost
						s.cut()
					}
				case 7:
					time.Sleep(time.Duration(rng.IntN(int(8 * time.Second))))
				case 8: // several at once
					continue
				}
				synctest.Wait()
				if silent { // until that is noticed
					continue
				}
				for _, channel := range channels {
					payload := fmt.Sprint(step, channel)
					s.publish(channel, payload)
					synctest.Wait()
					for l, of := range listeners {
						if told := l.heard(); of == channel && slices.Contains(told, payload) != l.isUp() {
							t.Fatalf("seed %d, step %d: up %v, told %q", seed, step, l.isUp(), told)
						}
					}
				}
			}
			s.with(func() { s.refusal, s.silent = nil, false })
			s.cut()
			after(time.Minute)
			for l, channel := range listeners {
				if !l.isUp() {
					t.Errorf("seed %d: the listener of %s stays down: told %q", seed, channel, l.heard())
				}
			}
			want := make(map[string]int)
			for _, channel := range listeners {
				want[channel] = 1
			}
			if got := len(s.subscribed("a")) + len(s.subscribed("b")); got != len(want) {
				t.Errorf("seed %d: %d subscriptions for %d channels", seed, got, len(want))
			}
			if wanted, connected := m.State(); wanted != (len(want) > 0) || connected != wanted {
				t.Errorf("seed %d: wanted %v, connected %v with %d channels", seed, wanted, connected, len(want))
			}
		})
	}
}

func TestMux_Listen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServers()
		m, _ := newMux(t, s)
		var first, second listener
		m.Listen("c", &first)
		first.want(t, "before the server has answered")
		synctest.Wait()
		first.want(t, "the first", "up")
		m.Listen("c", &second)
		second.want(t, "one more of a channel that is subscribed", "up")
		s.publish("c", "hello")
		synctest.Wait()
		first.want(t, "the first", "hello")
		second.want(t, "the second", "hello")
		if s.opened != 1 || len(s.commands) != 1 {
			t.Errorf("%d connections, commands %q", s.opened, s.commands)
		}
	})
}

// A client's own channel for a lock (c:1) is subscribed before the lock's channel (c): when that is up, package lock
// relies on both.
func TestMux_Listen_LongerNameFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServers()
		m, _ := newMux(t, s)
		m.Listen("c:1", &listener{})
		m.Listen("c", &listener{})
		m.Listen("b", &listener{})
		synctest.Wait()
		if got := slices.Concat(s.commands...); !slices.Equal(got, []string{"c:1", "c", "b"}) {
			t.Errorf("subscribed to %q", got)
		}
	})
}

// The connection is closed when nobody listens. Who comes back before that misses nothing, and isn't told anything.
func TestMux_Unlisten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServers()
		m, _ := newMux(t, s)
		var stays, leaves, other listener
		m.Listen("c", &stays)
		m.Listen("c", &leaves)
		m.Listen("d", &other)
		synctest.Wait()
		m.Unlisten("c", &leaves)
		m.Unlisten("c", &leaves)
		s.publish("c", "hello")
		synctest.Wait()
		stays.want(t, "who stays", "up", "hello")
		leaves.want(t, "who has left", "up")

		m.Unlisten("d", &other)
		m.Listen("d", &other)
		synctest.Wait()
		other.want(t, "who came back at once", "up", "up")

		for range 3 {
			m.Unlisten("d", &other)
			m.Listen("e", &listener{})
			synctest.Wait()
			m.Listen("d", &other)
			synctest.Wait()
		}
		other.want(t, "who came back later", "up", "up", "up")
		m.Unlisten("d", &other)
		m.Unlisten("c", &stays)
		synctest.Wait()
		if got := s.subscribed("a"); !slices.Equal(got, []string{"e"}) {
			t.Errorf("still subscribed to %q", got)
		}
	})
}

func TestMux_Unlisten_Last(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServers()
		m, _ := newMux(t, s)
		var l listener
		for n := 1; n <= 2; n++ {
			m.Listen("c", &l)
			synctest.Wait()
			if wanted, connected := m.State(); !wanted || !connected || len(s.conns) != 1 || s.opened != n {
				t.Errorf("wanted %v, connected %v, over %d of %d connections", wanted, connected, len(s.conns), s.opened)
			}
			m.Unlisten("c", &l)
			synctest.Wait()
			if wanted, connected := m.State(); wanted || connected || len(s.conns) != 0 {
				t.Errorf("nobody listens: wanted %v, connected %v, over %d connections", wanted, connected, len(s.conns))
			}
		}
	})
}

// A lasting refusal is reported once, and once more when it is over. Other channels are not affected.
func TestMux_Refused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServers()
		m, told := newMux(t, s)
		s.refusal, s.refuses = forbidden, func(channel string) bool { return channel == "bad" }
		var good, bad listener
		m.Listen("good", &good)
		m.Listen("bad", &bad)
		after(time.Minute)
		s.publish("good", "0")
		after(0)
		if bad.isUp() || !good.isUp() || !slices.Equal(told.refused, []string{forbidden.Error()}) {
			t.Fatalf("up: the refused %v, the other %v; reported %q", bad.isUp(), good.isUp(), told.refused)
		}
		if wanted, connected := m.State(); !wanted || connected {
			t.Errorf("wanted %v, connected %v though a subscription is refused", wanted, connected)
		}
		if n := len(s.commands); n < 60/8 || n > 2+60/2 {
			t.Errorf("%d SUBSCRIBEs in a minute", n)
		}
		for _, channels := range s.commands[2:] {
			if len(channels) != 1 {
				t.Errorf("after a refusal SUBSCRIBE %q", channels)
			}
		}
		s.with(func() { s.refusal = nil })
		after(8 * time.Second)
		if !bad.isUp() || !slices.Equal(told.refused, []string{forbidden.Error(), ""}) {
			t.Errorf("accepted: up %v, reported %q", bad.isUp(), told.refused)
		}
	})
}

// A refusal that may end by itself is retried sooner, and reported only if it lasts.
func TestMux_Refused_Temporarily(t *testing.T) {
	for _, lasts := range []time.Duration{3 * time.Second, 20 * time.Second} {
		t.Run(fmt.Sprint(lasts), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServers()
				m, told := newMux(t, s)
				s.refusal = notReady
				var l listener
				m.Listen("c", &l)
				after(lasts)
				if wanted, connected := m.State(); !wanted || connected {
					t.Errorf("wanted %v, connected %v", wanted, connected)
				}
				s.with(func() { s.refusal = nil })
				after(1200 * time.Millisecond)
				want := []string{notReady.Error(), ""}
				if lasts < 5*time.Second {
					want = nil
				}
				if !l.isUp() || !slices.Equal(told.refused, want) {
					t.Errorf("up %v, reported %q, want %q", l.isUp(), told.refused, want)
				}
			})
		})
	}
}

// A proxy that closes the connection at SUBSCRIBE refuses it, too: it is asked less often when that lasts, and reported once.
func TestMux_ClosedAtSubscribe(t *testing.T) {
	for _, lasts := range []time.Duration{3 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(lasts), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServers()
				m, told := newMux(t, s)
				s.closes = true
				var l listener
				m.Listen("c", &l)
				after(lasts)
				n := s.opened
				s.with(func() { s.closes = false })
				after(8 * time.Second)
				var want []string
				if lasts > 5*time.Second {
					want = []string{net.ErrClosed.Error(), ""}
					if n < 60/8 || n > 50 {
						t.Errorf("%d connections in a minute", n)
					}
				}
				if !l.isUp() || !slices.Equal(told.refused, want) {
					t.Errorf("up %v, reported %q, want %q", l.isUp(), told.refused, want)
				}
				s.with(func() { s.closes = true }) // once more
				s.cut()
				after(lasts)
				if len(told.refused) != len(want)*3/2 {
					t.Errorf("reported %q", told.refused)
				}
			})
		})
	}
}

// A connection that is silent is replaced: soon if anybody waits for a lock.
func TestMux_SilentConnection(t *testing.T) {
	for name, patience := range map[string]time.Duration{"lock": 3 * time.Second, "control": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServers()
				m, _ := newMux(t, s)
				var l listener
				if name == "lock" {
					m.Listen("c", &l)
				} else {
					m.Control(backend.Endpoint{Node: "a"}, "c", &l)
				}
				synctest.Wait()
				time.Sleep(10*patience + patience/2)
				l.want(t, "the server answers PING", "up")
				s.with(func() { s.silent = true })
				after(2 * patience)
				l.want(t, "it doesn't any more", "down")
				s.with(func() { s.silent = false })
				s.cut()
				after(time.Second)
				l.want(t, "it does again", "down", "up")
			})
		})
	}
}

// The old node of a channel that has moved is not listened to any more. It says so, or Recheck and time find out.
func TestMux_ChannelMoves(t *testing.T) {
	for name, found := range map[string]time.Duration{"told": time.Second, "rechecked": time.Second, "unnoticed": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServers()
				m, _ := newMux(t, s)
				var l, stays listener
				m.Listen("c", &l)
				m.Listen("d", &stays)
				after(2 * time.Second)
				if name == "told" {
					s.move("c", "b")
				} else {
					s.with(func() { s.owners["c"], s.hidden = "b", true })
				}
				if name == "rechecked" {
					for range 10 {
						m.Recheck("c")
					}
				}
				after(found)
				l.want(t, "the listener", "up", "down", "up")
				stays.want(t, "that of another channel", "up")
				if a, b := s.subscribed("a"), s.subscribed("b"); !slices.Equal(a, []string{"d"}) || !slices.Equal(b, []string{"c"}) {
					t.Errorf("subscribed at a: %q, at b: %q", a, b)
				}
				if name == "rechecked" && s.follows > 2 { // one for all, and one after the move
					t.Errorf("%d checks in a second", s.follows)
				}
			})
		})
	}
}

// While a channel's slot leaves its node, messages may be published elsewhere. A check finds that out, and whether it is over.
func TestMux_SlotLeaves(t *testing.T) {
	for name, then := range map[string]struct {
		what func(s *servers)
		told []string // both listeners together, sorted
		at   string   // where the channel is subscribed to then
	}{
		"it stays after all":    {func(s *servers) { s.leaving = nil }, []string{"up", "up"}, "a"},
		"it has left":           {func(s *servers) { s.leaving = nil; s.handOn("c", "b") }, []string{"down", "down", "up", "up"}, "b"},
		"... unnoticed":         {func(s *servers) { s.leaving, s.owners["c"], s.hidden = nil, "b", true }, []string{"up", "up"}, "b"},
		"the connection breaks": {func(s *servers) { s.leaving = nil; s.cutAll() }, []string{"down", "down", "up", "up"}, "a"},
		"the node says nothing": {func(s *servers) { s.leaving, s.mute = nil, true }, nil, "a"},
		"it goes on":            {func(*servers) {}, nil, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServers()
				m, _ := newMux(t, s)
				var l, stays, late listener
				m.Listen("c", &l)
				m.Listen("d", &stays)
				after(2 * time.Second)
				s.with(func() { s.leaving = map[string]bool{"c": true} })
				after(time.Second)
				l.want(t, "the listener, at the first check", "up", "down")
				m.Listen("c", &late)
				after(time.Minute)
				l.want(t, "the listener, later")
				late.want(t, "who comes meanwhile")

				s.with(func() { then.what(s) })
				after(4 * time.Second)
				if told := slices.Sorted(slices.Values(append(l.heard(), late.heard()...))); !slices.Equal(told, then.told) {
					t.Errorf("both listeners were told %q, want %q", told, then.told)
				}
				for _, node := range []string{"a", "b"} {
					if got := s.subscribed(node); slices.Contains(got, "c") != (node == then.at) {
						t.Errorf("subscribed at %s: %q; want the channel at %s alone", node, got, then.at)
					}
				}
				if name != "the connection breaks" {
					stays.want(t, "that of another channel", "up")
				}
			})
		})
	}
}

// A node has lost a channel, and is handing on another, but the layout that go-redis has is old: messages of both may be published elsewhere.
func TestMux_OldLayout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServers()
		m, _ := newMux(t, s)
		var lost, leaving, stays listener
		m.Listen("c", &lost)
		m.Listen("d", &leaving)
		m.Listen("e", &stays)
		after(2 * time.Second)
		s.with(func() { s.owners["c"], s.hidden, s.stale, s.leaving = "b", true, true, map[string]bool{"d": true} })
		after(4 * time.Second)
		lost.want(t, "the listener of the lost channel", "up", "down")
		leaving.want(t, "that of the channel that leaves", "up", "down")
		stays.want(t, "that of another channel", "up")
		s.with(func() { s.leaving = nil })
		after(4 * time.Second)
		leaving.want(t, "that of the channel that stays after all", "up")
		lost.want(t, "that of the lost channel, meanwhile")
		s.with(func() { s.stale = false })
		after(8 * time.Second)
		lost.want(t, "that of the lost channel, at its new node", "up")
		stays.want(t, "that of another channel, later")
	})
}

// The server is checked as often as the documentation says, whether the connection is silent or not.
func TestMux_ChecksRegularly(t *testing.T) {
	const waiting, control = 3 * time.Second, 30 * time.Second
	for name, tt := range map[string]struct{ messages, checks time.Duration }{
		"silence":                {time.Hour, waiting},
		"messages":               {waiting - 1, waiting},
		"a control channel only": {time.Hour, control},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServers()
				m, _ := newMux(t, s)
				m.Control(backend.Endpoint{Node: "a"}, "ctl", &listener{})
				if tt.checks == waiting {
					m.Listen("c", &listener{})
				}
				const checks = 20
				end := time.Now().Add(checks*tt.checks + tt.checks/2)
				for left := time.Until(end); left > 0; left = time.Until(end) {
					after(min(left, tt.messages))
					s.publish("c", "hello")
				}
				if s.follows != checks {
					t.Errorf("%d checks, want %d: one every %v", s.follows, checks, tt.checks)
				}
			})
		})
	}
}

// A control channel stays at its endpoint, until a cluster's node is gone.
func TestMux_Control(t *testing.T) {
	for _, bus := range []bool{true, false} {
		t.Run(fmt.Sprintf("bus %v", bus), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServers()
				m, told := newMux(t, s)
				at := backend.Endpoint{Node: "b", Bus: bus}
				var l listener
				m.Control(at, "ctl", &l)
				m.Control(at, "ctl", &listener{})
				synctest.Wait()
				l.want(t, "the listener", "up")
				if got := s.subscribed("b"); !slices.Equal(got, []string{"ctl"}) {
					t.Errorf("subscribed to %q", got)
				}
				s.with(func() { s.gone["b"] = true })
				s.cut()
				after(5 * time.Second)
				wanted, connected := m.State()
				if len(told.gone) != map[bool]int{true: 1}[bus] || wanted == bus || connected {
					t.Errorf("gone: reported %v; wanted %v, connected %v", told.gone, wanted, connected)
				}
				s.with(func() { s.gone["b"] = false })
				l.heard()
				if bus {
					m.Control(at, "ctl", &l)
				}
				after(2 * time.Second)
				if !l.isUp() {
					t.Errorf("it is back: told %q", l.heard())
				}
			})
		})
	}
}

func TestMux_Close(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServers()
		m, _ := newMux(t, s)
		var l, late listener
		m.Listen("c", &l)
		m.Control(backend.Endpoint{Bus: true}, "ctl", &listener{})
		synctest.Wait()
		m.Close()
		l.want(t, "the listener", "up", "down")
		m.Listen("c", &late)
		m.Control(backend.Endpoint{}, "ctl", &late)
		m.Recheck("c")
		m.Unlisten("c", &l)
		m.Close()
		synctest.Wait()
		if len(s.conns) != 0 || s.opened != 2 {
			t.Errorf("%d of %d connections open", len(s.conns), s.opened)
		}
		late.want(t, "who came late")
	})
}
