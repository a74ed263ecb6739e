package connect_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) {
	for _, name := range []string{connect.EnvURL, connect.EnvPassword, connect.EnvSentinelAuth, connect.EnvPrefix} {
		_ = os.Unsetenv(name)
	}
	redistest.Main(m)
}

// secret is never to be seen in an error.
const secret = "s3cret"

// flags are those of a command line.
func flags(t *testing.T, args ...string) *connect.Flags {
	t.Helper()
	var f connect.Flags
	set := pflag.NewFlagSet("lockdog", pflag.ContinueOnError)
	f.Register(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &f
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		address string
		addrs   string
		db      int
		tls     bool
	}{
		{"", "127.0.0.1:6379", 0, false},
		{"redis.example", "redis.example:6379", 0, false},
		{"redis.example:7000", "redis.example:7000", 0, false},
		{"redis.example:7000/2", "redis.example:7000", 2, false},
		{":7000", "127.0.0.1:7000", 0, false},
		{"redis://", "127.0.0.1:6379", 0, false},
		{"redis:///4", "127.0.0.1:6379", 4, false},
		{"redis://h/", "h:6379", 0, false},
		{"redis://h:7000/12", "h:7000", 12, false},
		{"redis://h?db=3", "h:6379", 3, false},
		{"redis://h:/", "h:6379", 0, false},
		{"REDIS://h", "h:6379", 0, false},
		{"rediss://h", "h:6379", 0, true},
		{"rediss://a:1,b,c:3/1", "a:1 b:6379 c:3", 1, true},
		{"a:1,b:2", "a:1 b:2", 0, false},
		{"a:1,b", "a:1 b:6379", 0, false},
		{"::1", "[::1]:6379", 0, false},
		{"[::1]", "[::1]:6379", 0, false},
		{"[::1]:7000", "[::1]:7000", 0, false},
		{"redis://[::1]:1,[fe80::1%eth0]:2,::2/1", "[::1]:1 [fe80::1%eth0]:2 [::2]:6379", 1, false},
		{"unix:///run/redis.sock", "/run/redis.sock", 0, false},
		{"unix:///run/redis.sock?db=2", "/run/redis.sock", 2, false},
		{"/run/redis.sock", "/run/redis.sock", 0, false},
	} {
		o, err := flags(t, "-u", tt.address).ClientOptions()
		if err != nil {
			t.Errorf("%q: %v", tt.address, err)
			continue
		}
		if got := strings.Join(o.Addrs, " "); got != tt.addrs || o.DB != tt.db || (o.TLSConfig != nil) != tt.tls || o.TLSConfig != nil && o.TLSConfig.ServerName != "" {
			t.Errorf("%q: %s, database %d, TLS %+v", tt.address, got, o.DB, o.TLSConfig)
		}
		// The same from the environment.
		t.Setenv(connect.EnvURL, tt.address)
		if o, err := flags(t).ClientOptions(); err != nil || strings.Join(o.Addrs, " ") != tt.addrs {
			t.Errorf("$%s=%q: %+v, %v", connect.EnvURL, tt.address, o, err)
		}
	}
}

// What can't be right is refused before anything is sent, with what is allowed, and without a part of the address.
func TestRefusedSettings(t *testing.T) {
	for _, tt := range []struct{ env, args, want string }{
		{"", "-u http://h", "redis://"},
		{"", "-u redis://h/x", "number of a database"},
		{"", "-u redis://h/-1", "number of a database"},
		{"", "-u redis://h/1/2", "number of a database"},
		{"", "-u redis://h:x", "host:port"},
		{"", "-u redis://h:0", "host:port"},
		{"", "-u redis://h:70000", "host:port"},
		{"", "-u redis://a:1:2", "host:port"},
		{"", "-u redis://a,,b", "host:port"},
		{"", "-u [::1", "host:port"},
		{"", "-u redis://h?color=red", "db=2"},
		{"", "-u redis://h?db=x", "db=2"},
		{"", "-u unix://run/redis.sock", "unix:// and a path"},
		{"", "-u unix://", "unix:// and a path"},
		{"", "-u ./r.sock", "Unix socket must begin with /"},
		{"", "-u ../run/r", "Unix socket must begin with /"},
		{"", "-u ~/r", "Unix socket must begin with /"},
		{"", "-u run/redis.sock", "Unix socket must begin with /"},
		{"", "-u redis://:" + secret + "@h", "list of processes"},
		{"", "-u redis://me:" + secret + "@h", "list of processes"},
		{"", "-u me:" + secret + "@h:1", "list of processes"},
		{"", "-u unix://me:" + secret + "@/run/s", "list of processes"},
		{"", "-u redis://me@h", connect.EnvPassword},
		{"", "--user me", `--user "me" has no password`},
		{"redis://" + secret + "@h", "", "has no password"}, // as redis-cli has it
		{"redis://:" + secret + "/x@h", "", "%2F"},
		{"redis://:12/" + secret + "@h", "", "%2F"},
		{"redis://:12?" + secret + "@h", "", "%3F"},
		{"redis://:12#" + secret + "@h", "", "%23"},
		{"redis://:%" + secret + "@h", "", "%25"},
		{"redis://:1@h:" + secret, "", "host:port"},
		{"redis://h/" + secret, "", "number of a database"},
		{"redis://h?" + secret + "=1", "", "db=2"},
		{"redis://h?password=" + secret, "", "db=2"},
		{secret + "://h", "", "redis://"},
		{"", "--timeout 0s", "--timeout"},
		{"", "--timeout -1s", "--timeout"},
		{"", "-n -1", "--db"},
		{"", "--password-file /nowhere/file", "/nowhere/file"},
		{"", "--cacert x", "--tls"},
		{"", "--insecure", "--tls"},
		{"", "--sni x", "rediss://"},
		{"", "--tls --cacert /nowhere/ca", "/nowhere/ca"},
		{"", "--tls --cert x", "--key"},
		{"", "--tls --key x", "--cert"},
		{"", "--tls --cert /nowhere/c --key /nowhere/k", "/nowhere/c"},
		{"", "--password-file " + file(t, "\n"+secret), "first line is empty"},
		{"", "--password-file " + file(t, ""), "first line is empty"},
		{"", "--tls --cacert " + file(t, "text"), "no certificate"},
	} {
		t.Setenv(connect.EnvURL, tt.env)
		server, err := flags(t, strings.Fields(tt.args)...).Open(t.Context())
		if server != nil || !errors.Is(err, connect.ErrUsage) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s %s: %v, want %q", tt.env, tt.args, err, tt.want)
		}
	}
}

func TestCredentials(t *testing.T) {
	path := file(t, "of the file\r\nand more\n")
	for _, tt := range []struct{ url, env, args, user, password string }{
		{"redis://h", "", "", "", ""},
		{"redis://:of%20the%20URL@h", "", "", "", "of the URL"},
		{"redis://me:a%2Fb%3F%23%40%25:c@h/1", "", "", "me", "a/b?#@%:c"},
		{"redis://me:a@b@h", "", "", "me", "a@b"}, // as redis-cli has it not; but what else can it be
		{"redis://m%3Ae:x@h", "", "", "m:e", "x"},
		{"rediss://me:x@a:1,b:2", "", "", "me", "x"},
		{"unix://me:x@/run/s", "", "", "me", "x"},
		{"redis://me:x@h", "of the environment", "", "me", "of the environment"},
		{"redis://me@h", "of the environment", "", "me", "of the environment"},
		{"redis://me:x@h", "of the environment", "--password-file " + path, "me", "of the file"},
		{"redis://me:x@h", "", "--password-file " + path, "me", "of the file"},
		{"redis://me:x@h", "", "--user other", "other", "x"},
		{"redis://h", "of the environment", "--user other", "other", "of the environment"},
		{"redis://me:x@h", "of the environment", "-u you@h", "you", "of the environment"},
	} {
		t.Setenv(connect.EnvURL, tt.url)
		t.Setenv(connect.EnvPassword, tt.env)
		o, err := flags(t, strings.Fields(tt.args)...).ClientOptions()
		if err != nil || o.Username != tt.user || o.Password != tt.password {
			t.Errorf("%+v: %+v, %v", tt, o, err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Setenv(connect.EnvURL, "redis://h/3")
	t.Setenv(connect.EnvPrefix, "app:")
	t.Setenv(connect.EnvSentinelAuth, "sentinels'")
	check := func(what string, ok func(o *redis.UniversalOptions, f *connect.Flags) bool, args ...string) {
		t.Helper()
		f := flags(t, args...)
		if o, err := f.ClientOptions(); err != nil || !ok(o, f) {
			t.Errorf("%s: %+v, %v", what, o, err)
		}
	}
	check("the address's database", func(o *redis.UniversalOptions, _ *connect.Flags) bool { return o.DB == 3 })
	check("another database", func(o *redis.UniversalOptions, _ *connect.Flags) bool { return o.DB == 2 }, "-n", "2")
	check("database 0", func(o *redis.UniversalOptions, _ *connect.Flags) bool { return o.DB == 0 }, "-n", "0")
	check("prefix", func(_ *redis.UniversalOptions, f *connect.Flags) bool { return f.Prefix == "app:" })
	check("other prefix", func(_ *redis.UniversalOptions, f *connect.Flags) bool { return f.Prefix == "x" }, "--prefix", "x")
	check("Sentinels", func(o *redis.UniversalOptions, _ *connect.Flags) bool {
		return o.SentinelUsername == "s" && o.SentinelPassword == "sentinels'"
	}, "--sentinel-user", "s")
	check("timeouts", func(o *redis.UniversalOptions, _ *connect.Flags) bool {
		return slices.Equal([]time.Duration{o.DialTimeout, o.ReadTimeout, o.WriteTimeout}, []time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}) && o.ContextTimeoutEnabled
	}, "--timeout", "7s")
	check("TLS", func(o *redis.UniversalOptions, _ *connect.Flags) bool {
		return o.TLSConfig != nil && !o.TLSConfig.InsecureSkipVerify && o.TLSConfig.ServerName == ""
	}, "--tls")
	check("TLS unchecked", func(o *redis.UniversalOptions, _ *connect.Flags) bool {
		return o.TLSConfig.InsecureSkipVerify && o.TLSConfig.ServerName == "n"
	}, "--tls", "--insecure", "--sni", "n")
}
