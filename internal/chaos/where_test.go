//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// whereEvery is how often a client is asked where it sends commands.
const whereEvery = 20 * time.Millisecond

// tellWhere notes which server the program's own client sends the commands for each name to, whenever that changes: lockdog may
// renew there, and nowhere else.
func (c *client) tellWhere() (stop func()) {
	if !c.Stale {
		return func() {}
	}
	last := make(map[string]string)
	return every(whereEvery, func(ctx context.Context) {
		for _, name := range c.names() {
			// What fails says nothing: there will be another.
			if server, err := whereGoes(ctx, c.rdbs[0], name); err == nil && server != last[name] {
				last[name] = server
				c.diary.note(history.Event{At: now(), What: history.Where, Name: name, Server: server})
			}
		}
	})
}

// whereGoes is the port of the server that commands for a name go to.
func whereGoes(ctx context.Context, rdb redis.UniversalClient, name string) (port string, err error) {
	if c, ok := rdb.(*redis.ClusterClient); ok {
		node, err := c.MasterForKey(ctx, name)
		if err != nil {
			return "", err
		}
		_, port, err = net.SplitHostPort(node.Options().Addr)
		return port, err
	}
	// Only the server knows: a Sentinel client has no address, and there is a proxy in between.
	cmd := once{redis.NewCmd(ctx, "CLIENT", "INFO")}
	if err := rdb.Process(ctx, cmd); err != nil {
		return "", err
	}
	text, _ := cmd.Text()
	for field := range strings.FieldsSeq(text) {
		if addr, ok := strings.CutPrefix(field, "laddr="); ok {
			_, port, err = net.SplitHostPort(addr)
			return port, err
		}
	}
	return "", errors.New("the server doesn't say which it is")
}

// once is a command that go-redis doesn't send again.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }
