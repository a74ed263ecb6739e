//go:build unix

package child

import (
	"fmt"
	"strconv"
	"strings"
)

// guardOrder is what a guard gets in its environment.
type guardOrder struct {
	fd        int   // of its end of the socket
	ask, kill int64 // the first limit, by clock
	group     group
	path      string
}

// group is which process group a command gets.
type group int

const (
	groupOwn     group = iota // its own
	groupShared               // that of lockdog and the guard
	groupSession              // its own, in its own session
)

// groupOfCommand returns which process group a command gets from this process, whose terminal is t, nil for none.
func groupOfCommand(t *terminal) group {
	switch {
	case t == nil:
		return groupOwn
	// A shared group has other members, too: the processes to kill must be found as descendants.
	case listsDescendants():
		return groupShared
	}
	return groupSession
}

func (o *guardOrder) env() string {
	return fmt.Sprintf("%s=%d %d %d %d %s", guardEnv, o.fd, o.ask, o.kill, o.group, o.path)
}

func parseGuardOrder(text string) (o guardOrder, err error) {
	words := strings.SplitN(text, " ", 5) // the path may contain spaces
	if len(words) < 5 || words[4] == "" {
		return o, strconv.ErrSyntax
	}
	o.path = words[4]
	_, err = fmt.Sscan(text, &o.fd, &o.ask, &o.kill, &o.group)
	return o, err
}
