package redistest

import (
	"crypto/rand"
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

// config is everything a redis.conf is made of but the port and the folder,
// which each attempt to start chooses anew.
type config struct {
	lines         []string
	env           []string
	password      string // of the default user; empty: none
	adminPassword string
	sentinel      bool
}

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
