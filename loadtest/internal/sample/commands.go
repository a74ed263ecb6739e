package sample

import "strings"

// Commands sorts the commands of a stretch of time by how they came to run. INFO doesn't record it, but names show it: what clients send
// over the network and what their scripts call have no name in common but GET and SET, and of those the foreground knows
// how many it has sent.
type Commands struct {
	Scripts int64 // EVALSHA and EVAL: acquires, renewals and releases
	PubSub  int64 // subscriptions, and the pings over their connections
	Setup   int64 // greetings of new connections, layouts of clusters, loading of scripts
	InLua   int64 // called by scripts
}

// Received is what came over the network, without the foreground's and the sampler's own.
func (c Commands) Received() int64 { return c.Scripts + c.PubSub + c.Setup }

// Sort sorts what the server executed. foreground is how many GETs and SETs came over the network.
func Sort(executed map[string]Stat, foreground int64) Commands {
	c := Commands{InLua: -foreground}
	for name, s := range executed {
		family, _, _ := strings.Cut(name, "|")
		switch family {
		case "eval", "evalsha":
			c.Scripts += s.Calls
		case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "ping":
			c.PubSub += s.Calls
		case "hello", "auth", "select", "client", "cluster", "command", "config", "script", "readonly", "asking", "quit":
			c.Setup += s.Calls
		case "info": // the sampler's
		default:
			c.InLua += s.Calls
		}
	}
	return c
}
