// Package connect turns what users of redis-cli know (a URL, a user, certificates) into a client for the servers at
// that address: a single server, a Cluster, or the primary behind Sentinels. It asks the server which of these it is.
package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

// The environment variables. Passwords come from them or from files, never from arguments: every user of the machine
// can read those.
const (
	EnvURL          = "REDIS_URL"
	EnvPassword     = "REDISCLI_AUTH"
	EnvSentinelAuth = "LOCKDOG_SENTINEL_AUTH"
	EnvPrefix       = "LOCKDOG_PREFIX"
)

const defaultURL = "redis://127.0.0.1:6379"

// ErrUsage is matched by the error for an invalid address or setting. Some are found only after asking the server.
var ErrUsage = errors.New("bad address or setting")

// usagef returns an error that matches ErrUsage.
func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUsage, fmt.Errorf(format, args...))
}

// ErrConnect is matched by the error for a server that can't be reached, refuses the user or isn't ready, and by the
// error if ctx ends during Open.
var ErrConnect = errors.New("no connection")

// Flags are the flags for connecting: address, credentials, TLS, key prefix and timeout.
type Flags struct {
	URL           string
	User          string
	PasswordFile  string
	DB            int
	SentinelName  string
	SentinelUser  string
	TLS, Insecure bool
	CACert        string
	Cert, Key     string
	ServerName    string
	Prefix        string
	Timeout       time.Duration

	Once bool // don't retry calls, so that a call to a silent server fails after Timeout

	set *pflag.FlagSet
}

// Register adds the flags to a command.
func (f *Flags) Register(set *pflag.FlagSet) {
	f.set = set
	set.StringVarP(&f.URL, "url", "u", "",
		"address: redis[s]://[user@]host[:port][/db], with commas between several host:port; host:port alone; or the path of a Unix socket; default $"+
			EnvURL+", or "+defaultURL)
	set.StringVar(&f.User, "user", "",
		"ACL user; its password comes from $"+EnvPassword+", $"+EnvURL+" or --password-file")
	set.StringVar(&f.PasswordFile, "password-file", "", "file whose first line is the password")
	set.IntVarP(&f.DB, "db", "n", 0, "number of the database; default that of the address, or 0")
	set.StringVar(&f.SentinelName, "sentinel-master", "",
		"name of the primary, where the address is that of Sentinels which know several")
	set.StringVar(&f.SentinelUser, "sentinel-user", "",
		"ACL user at the Sentinels; their password comes from $"+EnvSentinelAuth)
	set.BoolVar(&f.TLS, "tls", false, "connect with TLS, as rediss:// does")
	set.StringVar(&f.CACert, "cacert", "", "file of the CA certificates to trust, PEM")
	set.StringVar(&f.Cert, "cert", "", "file of the client certificate, PEM")
	set.StringVar(&f.Key, "key", "", "file of its private key, PEM")
	set.StringVar(&f.ServerName, "sni", "", "name to expect in the server's certificate")
	set.BoolVar(&f.Insecure, "insecure", false, "accept any server certificate")
	set.StringVar(&f.Prefix, "prefix", os.Getenv(EnvPrefix),
		"key prefix of the locks, as given to WithKeyPrefix; default $"+EnvPrefix)
	set.DurationVar(&f.Timeout, "timeout", 5*time.Second, "how long a call waits for Redis")
}

// The values of Server.Mode.
const (
	Single   = "standalone"
	Cluster  = "cluster"
	Sentinel = "sentinel"
)

// Server is a connected client.
type Server struct {
	redis.UniversalClient
	Mode   string // Single, Cluster, or Sentinel
	Addr   string // without credentials
	Prefix string // key prefix
}

// Open connects, after finding out the mode of the servers.
func (f *Flags) Open(ctx context.Context) (*Server, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(o.Addrs)+1)*f.Timeout)
	defer cancel()
	s := &Server{Addr: strings.Join(o.Addrs, ","), Prefix: f.Prefix}
	refused := func(err error) error {
		if parent.Err() != nil {
			return fmt.Errorf("%w to %s: %w", ErrConnect, s.Addr, parent.Err())
		}
		return fmt.Errorf("%w to %s: %w", ErrConnect, s.Addr, f.withAdvice(err, o))
	}
	if s.Mode, err = discover(ctx, o); err != nil {
		return nil, refused(err)
	}
	if s.Mode != Sentinel && f.SentinelName != "" {
		return nil, usagef("--sentinel-master %s: %s is no Sentinel; give the address of one, or leave the flag out",
			f.SentinelName, s.Addr)
	}
	switch s.Mode {
	case Sentinel:
		if o.MasterName, err = f.primaryName(ctx, o); errors.Is(err, ErrUsage) {
			return nil, err
		} else if err != nil {
			return nil, refused(err)
		}
		s.Addr = o.MasterName + " at " + s.Addr
	case Cluster:
		o.IsClusterMode = true
		if o.DB != 0 {
			return nil, usagef("%s is a Cluster, which has no database but 0: leave out database %d", s.Addr, o.DB)
		}
	default:
		if len(o.Addrs) > 1 {
			return nil, usagef("of %s, one is neither a Cluster's nor a Sentinel's, so give one address alone", s.Addr)
		}
	}
	s.UniversalClient = redis.NewUniversalClient(o)
	defer closeWhenDone(parent, s)()
	if err := s.Ping(ctx).Err(); err != nil && !mayNotPing(err) {
		_ = s.Close()
		return nil, refused(err)
	}
	return s, nil
}

// closeWhenDone closes a client when ctx ends, unless stop is called before. The cancellation of a context doesn't end
// a call of go-redis that waits for a reply; its deadline does.
func closeWhenDone(ctx context.Context, c io.Closer) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.Close() })
}

// mayNotPing reports whether the user is logged in, and only lacks the right for PING.
func mayNotPing(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'ping'")
}

// options returns the client's options, except those that depend on the mode.
func (f *Flags) options() (*redis.UniversalOptions, error) {
	if f.Timeout <= 0 {
		return nil, usagef("--timeout %v: must be more than 0", f.Timeout)
	}
	o, withPassword, err := parse(cmp.Or(f.URL, os.Getenv(EnvURL), defaultURL))
	if err != nil {
		return nil, err
	}
	if withPassword && f.URL != "" {
		return nil, usagef(
			"-u has a password, which every user of this machine can read in the list of processes: put the URL into $%s, "+
				"or the password into $%s or a file for --password-file", EnvURL, EnvPassword)
	}
	if err := f.credentials(o); err != nil {
		return nil, err
	}
	if f.DB < 0 {
		return nil, usagef("--db %d: must be 0 or more", f.DB)
	}
	if f.set.Changed("db") {
		o.DB = f.DB
	}
	if o.TLSConfig, err = f.tls(o.TLSConfig); err != nil {
		return nil, err
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = f.Timeout, f.Timeout, f.Timeout
	if f.Once {
		o.MaxRetries, o.DialerRetries = -1, 1
	}
	o.ContextTimeoutEnabled = true
	o.SentinelUsername, o.SentinelPassword = f.SentinelUser, os.Getenv(EnvSentinelAuth)
	return o, nil
}

// credentials sets the user, and its password from the variable or the file.
func (f *Flags) credentials(o *redis.UniversalOptions) error {
	o.Username = cmp.Or(f.User, o.Username)
	o.Password = cmp.Or(os.Getenv(EnvPassword), o.Password)
	if f.PasswordFile != "" {
		text, err := os.ReadFile(f.PasswordFile)
		if err != nil {
			return usagef("--password-file: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if o.Password = strings.TrimSuffix(line, "\r"); o.Password == "" {
			return usagef("--password-file %s: its first line is empty, and should be the password", f.PasswordFile)
		}
	}
	if o.Username != "" && o.Password == "" {
		user := "the user in the address" // not quoted: it may be a password whose colon was forgotten
		if f.User != "" {
			user = fmt.Sprintf("--user %q", f.User)
		}
		return usagef("%s has no password: set $%s, or give --password-file", user, EnvPassword)
	}
	return nil
}

// tls returns the configuration of TLS, nil for none. given is the one from the URL.
func (f *Flags) tls(given *tls.Config) (*tls.Config, error) {
	if given == nil && !f.TLS {
		if f.CACert != "" || f.Cert != "" || f.Key != "" || f.ServerName != "" || f.Insecure {
			return nil, usagef("--cacert, --cert, --key, --sni and --insecure need --tls or an address with rediss://")
		}
		return nil, nil //nolint:nilnil // nil is how go-redis says that there is no TLS
	}
	cfg := cmp.Or(given, &tls.Config{MinVersion: tls.VersionTLS12})
	cfg.InsecureSkipVerify = cfg.InsecureSkipVerify || f.Insecure
	cfg.ServerName = cmp.Or(f.ServerName, cfg.ServerName)
	if f.CACert != "" {
		pem, err := os.ReadFile(f.CACert)
		if err != nil {
			return nil, usagef("--cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--cacert %s has no certificate", f.CACert)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, usagef("--cert and --key go together")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, usagef("--cert, --key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// discover asks the servers for their mode, until one answers. It asks without credentials first: most Sentinels need
// none, and some reject any.
func discover(ctx context.Context, o *redis.UniversalOptions) (mode string, err error) {
	var errs []error
	for _, addr := range o.Addrs {
		mode, err = modeOf(ctx, o, addr, "", "")
		if isAuth(err) && o.Password != "" {
			mode, err = modeOf(ctx, o, addr, o.Username, o.Password)
		}
		if isAuth(err) && o.SentinelPassword != "" {
			mode, err = modeOf(ctx, o, addr, o.SentinelUsername, o.SentinelPassword)
		}
		switch {
		case err == nil:
			return mode, nil
		case isAuth(err):
			return "", err
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// withAdvice adds to an error what the user can do about it.
func (f *Flags) withAdvice(err error, o *redis.UniversalOptions) error {
	var timeout net.Error
	var noTLS tls.RecordHeaderError
	var alert *net.OpError // of TLS
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	user := cmp.Or(o.Username, "default")
	advice := ""
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		advice = "user " + user + " is known, but lacks this right: add it with ACL SETUSER, or choose another with --user"
	case isAuth(err) && o.Password == "":
		advice = "set $" + EnvPassword + ", or give --password-file, and --user for an ACL user"
	case isAuth(err):
		advice = "check the user (" + user + ") and the password ($" + EnvPassword + ", $" + EnvURL + " or --password-file)"
	case errors.As(err, &noTLS):
		advice = "the server speaks no TLS there: choose its TLS port, or redis:// without --tls"
	case errors.As(err, &authority):
		advice = "give the file of the CA that signed the server's certificate as --cacert"
	case errors.As(err, &hostname):
		advice = "give a name in the server's certificate as --sni"
	case o.TLSConfig == nil && hungUp(err):
		advice = "the server hung up; if it wants TLS, use rediss:// or --tls"
	case o.TLSConfig != nil && len(o.TLSConfig.Certificates) == 0 &&
		(hungUp(err) || errors.As(err, &alert) && alert.Op == "remote error"):
		advice = "the server hung up; if it wants a client certificate, give --cert and --key"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		err = fmt.Errorf("no answer within --timeout %v: %w", f.Timeout, err)
		if o.TLSConfig != nil {
			advice = "if the server speaks no TLS there, choose its TLS port, or redis:// without --tls"
		}
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, advice)
}

// hungUp reports whether the server closed the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// optionsFor returns the options for asking a server for its mode, or a Sentinel for its primaries: in RESP2, without
// retries.
func optionsFor(o *redis.UniversalOptions, addr, user, password string) *redis.Options {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	return &redis.Options{
		Network: network, Addr: addr, Username: user, Password: password, TLSConfig: o.TLSConfig,
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		ContextTimeoutEnabled: true, DialerRetries: 1,
	}
}

func modeOf(ctx context.Context, o *redis.UniversalOptions, addr, user, password string) (string, error) {
	rdb := redis.NewClient(optionsFor(o, addr, user, password))
	defer func() { _ = rdb.Close() }()
	defer closeWhenDone(ctx, rdb)()
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello", "2")
	err := rdb.Process(ctx, hello)
	if redis.HasErrorPrefix(err, "unknown command") { // a server before Redis 6, or a proxy
		return Single, rdb.Ping(ctx).Err()
	}
	if err != nil {
		return "", err
	}
	if mode := hello.Val()["mode"]; mode == Cluster || mode == Sentinel {
		return mode.(string), nil
	}
	return Single, nil
}

// primaryName returns the name of the primary at the Sentinels.
func (f *Flags) primaryName(ctx context.Context, o *redis.UniversalOptions) (string, error) {
	var errs []error
	for _, addr := range o.Addrs {
		names, err := primariesOf(ctx, o, addr)
		known := strings.Join(names, ", ")
		switch {
		case isAuth(err) && f.SentinelName == "":
			return "", fmt.Errorf(
				"%w: the Sentinel at %s doesn't tell its primaries: %w: set $%s to its password, and --sentinel-user for an ACL user there",
				ErrConnect, addr, err, EnvSentinelAuth)
		case err != nil:
			errs = append(errs, err)
		case len(names) == 0:
			return "", usagef("the Sentinel at %s knows no primary", addr)
		case f.SentinelName == "" && len(names) > 1:
			return "", usagef("the Sentinel at %s knows several primaries: choose one of %s with --sentinel-master", addr, known)
		case f.SentinelName != "" && !slices.Contains(names, f.SentinelName):
			return "", usagef("--sentinel-master %s: the Sentinel at %s knows only %s", f.SentinelName, addr, known)
		default:
			return cmp.Or(f.SentinelName, names[0]), nil
		}
	}
	if f.SentinelName != "" { // the Sentinels' user may lack the right to list primaries, which clients don't need
		return f.SentinelName, nil
	}
	return "", errors.Join(errs...)
}

func primariesOf(ctx context.Context, o *redis.UniversalOptions, addr string) (names []string, err error) {
	sentinel := redis.NewSentinelClient(optionsFor(o, addr, o.SentinelUsername, o.SentinelPassword))
	defer func() { _ = sentinel.Close() }()
	defer closeWhenDone(ctx, sentinel)()
	primaries := redis.NewMapStringStringSliceCmd(ctx, "sentinel", "masters")
	err = sentinel.Process(ctx, primaries)
	for _, primary := range primaries.Val() {
		names = append(names, primary["name"])
	}
	return names, err
}

// IsDown reports whether a later call of Open may succeed with the same settings: the host isn't found, nobody listens
// there or answers, or the server closes the connection or isn't ready yet.
func IsDown(err error) bool {
	var network net.Error
	var alert *net.OpError // of TLS
	switch {
	case !errors.Is(err, ErrConnect), errors.As(err, &alert) && alert.Op == "remote error":
		return false
	case redis.HasErrorPrefix(err, "LOADING"), redis.HasErrorPrefix(err, "MASTERDOWN"),
		redis.HasErrorPrefix(err, "CLUSTERDOWN"):
		return true
	}
	return errors.As(err, &network) || hungUp(err)
}

// isAuth reports whether a server rejects the credentials, or the user lacks a right.
func isAuth(err error) bool {
	return redis.IsAuthError(err) || redis.HasErrorPrefix(err, "WRONGPASS") ||
		redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "NOPERM")
}
