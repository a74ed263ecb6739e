package redistest

import (
	"crypto/rand"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Option changes the configuration of a server. The default is: nothing persisted, no
// password, no limits.
type Option func(*config)

// WithConfig adds one line of redis.conf, such as
// WithConfig("maxmemory", "4mb"). If Redis takes a directive only once, the
// last line counts. An aclfile isn't possible: use [WithUser].
func WithConfig(directive string, args ...string) Option {
	return func(c *config) { c.lines = append(c.lines, confLine(directive, args...)) }
}

// WithEnv adds variables, each "NAME=value", to the server's environment.
func WithEnv(env ...string) Option {
	return func(c *config) { c.env = append(c.env, env...) }
}

// WithPassword makes the default user need this password. The Sentinels
// of a shape need none.
func WithPassword(password string) Option {
	return func(c *config) { c.password = password }
}

// WithUser adds an ACL user, or changes the user called default:
// WithUser("app", "on", ">secret", "~*", "&*", "+@all", "-publish").
func WithUser(name string, rules ...string) Option {
	return func(c *config) {
		c.lines = append(c.lines, confLine("user", append([]string{name}, rules...)...))
	}
}

// PubSubBefore7 sets whether the server lacks sharded pub/sub, like servers before 7. LOCKDOG_REDIS_BEFORE_7 names such
// a server. Without that variable, the usual server runs without those commands and without PUBSUB.
func PubSubBefore7(on bool) Option {
	return func(c *config) { c.before7 = on }
}

// OnNode applies options only to Nodes[i] of a [Cluster].
func OnNode(i int, opts ...Option) Option {
	return func(c *config) {
		c.onNode = append(c.onNode, func(node int, c *config) {
			if node == i {
				*c = c.with(opts...)
			}
		})
	}
}

// config has everything for a redis.conf except the port and the folder: each attempt to start chooses new ones.
type config struct {
	lines         []string
	env           []string
	password      string // of the default user; "": none
	adminPassword string
	sentinel      bool
	before7       bool
	apart         bool // run in a separate process group
	onNode        []func(node int, c *config)
}

// forNode returns the configuration of one node of a shape.
func (c config) forNode(i int) config {
	for _, apply := range c.onNode {
		apply(i, &c)
	}
	return c
}

const before7Env = "LOCKDOG_REDIS_BEFORE_7"

// adminUser is the user of this package's helpers, so that they work whatever a test forbids to the default user. Its
// random password also distinguishes our server from another one on the same port.
const adminUser = "redistest"

func newConfig(opts []Option) config {
	c := config{adminPassword: rand.Text()}
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// with returns a copy with more options.
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
			// Start the transfer to a replica at once. By default Redis waits five seconds for more replicas.
			confLine("repl-diskless-sync-delay", "0"),
			// A replica logs in as this package does.
			confLine("masteruser", adminUser),
			confLine("masterauth", c.adminPassword),
		)
		if c.password != "" {
			lines = append(lines, confLine("requirepass", c.password))
		}
	}
	if c.before7 && os.Getenv(before7Env) == "" {
		// SHARDNUMSUB is a subcommand of PUBSUB
		for _, command := range []string{"ssubscribe", "sunsubscribe", "spublish", "pubsub"} {
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
