package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	users "os/user"
	"slices"
	"strconv"
	"strings"
)

// policy says which locks users may take through the agent: by user name, number, or everyone, the names of locks. A
// name that ends with * stands for all that begin like it.
type policy map[string][]string

// everyone stands for all users.
const everyone = "*"

func readPolicy(path string) (policy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var p policy
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf(`%s: must be such as {"www-data": ["orders:*"], "1000": ["*"], "*": ["shared"]}: %w`, path, err)
	}
	for who, names := range p {
		for _, name := range names {
			if name == "" || strings.Contains(name[:len(name)-1], "*") {
				return nil, fmt.Errorf("%s: %q for %q: must be a name, or a beginning and one * at its end", path, name, who)
			}
		}
	}
	return p, nil
}

// allows reports whether a user, whose name may be "", may take a lock.
func (p policy) allows(uid, username, name string) bool {
	for _, who := range []string{username, uid, everyone} {
		if who != "" && slices.ContainsFunc(p[who], func(pattern string) bool {
			beginning, all := strings.CutSuffix(pattern, "*")
			return name == pattern || all && strings.HasPrefix(name, beginning)
		}) {
			return true
		}
	}
	return false
}

// mayTake returns an error if a peer may not take a lock. It reads the policy anew each time, so that a change counts
// for the next request.
func (a *Agent) mayTake(p peer, name string) error {
	if !p.known {
		return errors.New("locks are only for users of this machine, through a Unix socket on Linux")
	}
	if a.cfg.Policy == "" {
		return nil
	}
	rules, err := readPolicy(a.cfg.Policy)
	if err != nil {
		a.logger().Error("lockdog: no locks for anyone, because the policy can't be read", "error", err)
		return errors.New("the agent can't read its policy; see its log")
	}
	username := ""
	uid := strconv.FormatUint(uint64(p.uid), 10)
	if u, err := users.LookupId(uid); err == nil {
		username = u.Username
	}
	if !rules.allows(uid, username, name) {
		return fmt.Errorf("the policy doesn't let user %s (%s) take %.128q", uid, username, name)
	}
	return nil
}
