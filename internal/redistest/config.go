package redistest

import (
	"crypto/rand"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Option says how a server differs from the default: nothing persisted, no
// password, no limits.
type Option func(*config)

// WithConfig adds one line of redis.conf, such as
// WithConfig("maxmemory", "4mb"). Where Redis takes a directive once, the
// last one counts. An aclfile cannot be given: use [WithUser].
func WithConfig(directive string, args ...string) Option {
	return func(c *config) { c.lines = append(c.lines, confLine(directive, args...)) }
}

// WithEnv adds variables, each "NAME=value", to the server's environment.
func WithEnv(env ...string) Option {
	return func(c *config) { c.env = append(c.env, env...) }
}

// WithPassword makes the default user log in with this password. The Sentinels
// of a shape ask for none.
func WithPassword(password string) Option {
	return func(c *config) { c.password = password }
}

// WithUser adds an ACL user, or restricts the one called default:
// WithUser("app", "on", ">secret", "~*", "&*", "+@all", "-publish").
func WithUser(name string, rules ...string) Option {
	return func(c *config) {
		c.lines = append(c.lines, confLine("user", append([]string{name}, rules...)...))
	}
}

// PubSubBefore7 reports whether the server is to know no sharded pub/sub, as servers before 7 don't. LOCKDOG_REDIS_BEFORE_7 names
// such a server to run; without it, the usual one runs with the commands taken away.
func PubSubBefore7(on bool) Option {
	return func(c *config) { c.before7 = on }
}

// OnNode applies options to one node of a shape only: the i-th of [Cluster.Nodes].
func OnNode(i int, opts ...Option) Option {
	return func(c *config) {
		c.onNode = append(c.onNode, func(node int, c *config) {
			if node == i {
				*c = c.with(opts...)
			}
		})
	}
}

// config is everything a redis.conf is made of but the port and the folder,
// which each attempt to start chooses anew.
type config struct {
	lines         []string
	env           []string
	password      string // of the default user; empty: none
	adminPassword string
	sentinel      bool
	before7       bool
	apart         bool // in a process group of its own
	onNode        []func(node int, c *config)
}

// forNode is the configuration of one node of a shape.
func (c config) forNode(i int) config {
	for _, apply := range c.onNode {
		apply(i, &c)
	}
	return c
}

const before7Env = "LOCKDOG_REDIS_BEFORE_7"

// adminUser is whom the helpers of this package log in as, so that they work
// whatever a test forbids the default user. Its random password also tells our
// server from a stranger's on the same port.
const adminUser = "redistest"

func newConfig(opts []Option) config {
	c := config{adminPassword: rand.Text()}
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// with returns a copy with more options, for shapes that start several servers
// from one list.
func (c config) with(opts ...Option) config {
	c.lines, c.env = slices.Clone(c.lines), slices.Clone(c.env)
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

func (c config) text(port int, dir string) string {
	lines := []string{
		confLine("port", strconv.Itoa(port)),
		confLine("bind", "127.0.0.1"),
		confLine("protected-mode", "no"),
		confLine("daemonize", "no"),
		confLine("dir", dir),
		confLine("logfile", dir+"/"+logName),
		confLine("user", adminUser, "on", ">"+c.adminPassword, "~*", "&*", "+@all"),
	}
	if !c.sentinel {
		lines = append(lines,
			confLine("save", ""),
			confLine("appendonly", "no"),
			// A replica is wanted now, not after the usual five seconds
			// of waiting for more of them.
			confLine("repl-diskless-sync-delay", "0"),
			// As a replica it logs in like this package does.
			confLine("masteruser", adminUser),
			confLine("masterauth", c.adminPassword),
		)
		if c.password != "" {
			lines = append(lines, confLine("requirepass", c.password))
		}
	}
	if c.before7 && os.Getenv(before7Env) == "" {
		for _, command := range []string{"ssubscribe", "sunsubscribe", "spublish", "pubsub"} { // of PUBSUB it is a subcommand
			lines = append(lines, confLine("rename-command", command, ""))
		}
	}
	lines = append(lines, c.lines...)
	return strings.Join(lines, "\n") + "\n"
}

func confLine(directive string, args ...string) string {
	var b strings.Builder
	b.WriteString(directive)
	for _, arg := range args {
		b.WriteByte(' ')
		b.WriteString(strconv.Quote(arg))
	}
	return b.String()
}
