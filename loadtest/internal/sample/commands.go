package sample

import "strings"

// Commands counts the commands of a period by their sender, a client or a script. INFO doesn't record the sender, but
// the names show it: clients and scripts use different commands, except GET and SET. The caller knows how many of these
// came over the network.
type Commands struct {
	Scripts  int64 // EVALSHA and EVAL: acquires, renewals and releases
	Received int64 // over the network: scripts, GETs, SETs, subscriptions and their pings, what starts a connection
}

// Sort counts what the server executed, without the sampler's INFO. plain is the number of GETs and SETs that came over
// the network.
func Sort(executed map[string]Stat, plain int64) Commands {
	c := Commands{Received: plain}
	for name, s := range executed {
		family, _, _ := strings.Cut(name, "|")
		switch family {
		case "eval", "evalsha":
			c.Scripts += s.Calls
			c.Received += s.Calls
		case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "ping",
			"hello", "auth", "select", "client", "cluster", "command", "config", "script", "readonly", "asking", "quit":
			c.Received += s.Calls
		}
	}
	return c
}
