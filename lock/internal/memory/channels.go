package memory

import (
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

func publish(s *Server, args []string) any {
	if _, client, ok := strings.Cut(args[0], control); ok && len(s.subscribers[args[0]]) == 0 {
		s.notices[client] = append(s.notices[client], args[1])
	}
	for c := range s.subscribers[args[0]] {
		c.push(backend.Event{Kind: backend.Message, Channel: args[0], Payload: args[1]})
	}
	return int64(len(s.subscribers[args[0]]))
}

// spublish reaches nobody: connections to this server subscribe to plain channels only.
func spublish(*Server, []string) any { return int64(0) }

// pubsub is PUBSUB NUMSUB and PUBSUB SHARDNUMSUB.
func pubsub(s *Server, args []string) any {
	reply := make([]any, 0, 2*len(args))
	for _, channel := range args[1:] {
		reply = append(reply, channel, int64(len(s.subscribers[channel])))
	}
	switch strings.ToLower(args[0]) {
	case "numsub":
	case "shardnumsub":
		for i := 1; i < len(reply); i += 2 {
			reply[i] = int64(0)
		}
	default:
		return errUnknown
	}
	return reply
}
