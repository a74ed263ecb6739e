package redistest

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Option changes the configuration of a server. The default is: nothing persisted, no password, no limits.
type Option func(*config)

// WithConfig adds one line of redis.conf, such as WithConfig("maxmemory", "4mb"). If Redis takes a directive only once,
// the last line counts. An aclfile isn't possible: use [WithUser].
func WithConfig(directive string, args ...string) Option {
	return func(c *config) { c.lines = append(c.lines, confLine(directive, args...)) }
}

// WithEnv adds variables, each "NAME=value", to the server's environment.
func WithEnv(env ...string) Option {
	return func(c *config) { c.env = append(c.env, env...) }
}

// WithPassword makes the default user need this password. The Sentinels of a shape need none.
func WithPassword(password string) Option {
	return func(c *config) { c.password = password }
}

// WithUser adds an ACL user, or changes the user called default:
// WithUser("app", "on", ">secret", "~*", "&*", "+@all", "-publish").
func WithUser(name string, rules ...string) Option {
	return WithConfig("user", append([]string{name}, rules...)...)
}

// config has everything for a redis.conf except the port and the folder: each attempt to start chooses new ones.
type config struct {
	lines         []string
	env           []string
	password      string // of the default user; "": none
	adminPassword string
	sentinel      bool
	apart         bool // run in a separate process group
}

// adminUser is the user of this package's helpers, so that they work whatever a test forbids to the default user. Its
// random password also distinguishes our server from another one on the same port.
const adminUser = "redistest"

func newConfig(opts []Option) config {
	return config{adminPassword: rand.Text()}.with(opts...)
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
	text := fmt.Sprintf(`port %d
bind 127.0.0.1
protected-mode no
daemonize no
dir %q
logfile %q
user %s on %q ~* &* +@all
`, port, dir, filepath.Join(dir, logName), adminUser, ">"+c.adminPassword)
	if !c.sentinel {
		text += fmt.Sprintf(`save ""
appendonly no
# Start the transfer to a replica at once. By default Redis waits five seconds for more replicas.
repl-diskless-sync-delay 0
# A replica logs in as this package does.
masteruser %s
masterauth %q
`, adminUser, c.adminPassword)
	}
	if c.password != "" {
		text += confLine("requirepass", c.password)
	}
	return text + strings.Join(c.lines, "")
}

func confLine(directive string, args ...string) string {
	for _, arg := range args {
		directive += " " + strconv.Quote(arg)
	}
	return directive + "\n"
}
