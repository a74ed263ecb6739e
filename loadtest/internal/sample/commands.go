package sample

import "strings"

// Commands classifies the commands of a period by who sent them. INFO doesn't record that, but names show it. Clients
// and scripts use different commands, except GET and SET; the foreground knows how many of these it has sent.
type Commands struct {
	Scripts int64 // EVALSHA and EVAL: acquires, renewals and releases
	PubSub  int64 // subscriptions, and the pings over their connections
	Setup   int64 // commands that start a connection, layouts of clusters, loading of scripts
	InLua   int64 // called by scripts
}

// Received returns the number of commands that came over the network, except those of the foreground and the sampler.
func (c Commands) Received() int64 { return c.Scripts + c.PubSub + c.Setup }

// Sort classifies what the server executed. foreground is the number of GETs and SETs that came over the network.
func Sort(executed map[string]Stat, foreground int64) Commands {
	c := Commands{InLua: -foreground}
	for name, s := range executed {
		family, _, _ := strings.Cut(name, "|")
		switch family {
		case "eval", "evalsha":
			c.Scripts += s.Calls
		case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "ping":
			c.PubSub += s.Calls
		case "hello", "auth", "select", "client", "cluster", "command", "config", "script",
			"readonly", "asking", "quit":
			c.Setup += s.Calls
		case "info": // the sampler's
		default:
			c.InLua += s.Calls
		}
	}
	return c
}
