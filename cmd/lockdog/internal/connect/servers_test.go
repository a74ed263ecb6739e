package connect_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/internal/redistest"
)

// open opens, and checks that the client can be used.
func open(t *testing.T, mode string, args ...string) *connect.Server {
	t.Helper()
	s, err := patient(t, args).Open(t.Context())
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if s.Mode != mode {
		t.Errorf("%q: mode %s, want %s", args, s.Mode, mode)
	}
	if strings.Contains(s.Addr, "@") {
		t.Errorf("address %q", s.Addr)
	}
	return s
}

// refuses wants an error that matches one, has texts, and no secret.
// patient returns flags with a --timeout, unless args has one, that a busy machine doesn't reach: to read the system's roots may take seconds.
func patient(t *testing.T, args []string) *connect.Flags {
	t.Helper()
	return flags(t, append([]string{"--timeout", "1m"}, args...)...)
}

func refuses(t *testing.T, is error, wants []string, args ...string) {
	t.Helper()
	s, err := patient(t, args).Open(t.Context())
	if s != nil {
		_ = s.Close()
	}
	if !errors.Is(err, is) {
		t.Errorf("%q: %v, want %v", args, err, is)
		return
	}
	says := func(text string) bool { return strings.Contains(err.Error(), text) }
	down := errors.Is(err, connect.ErrConnect) && slices.ContainsFunc([]string{"connection refused", "no answer within", "no such", "hung up; if it wants TLS"}, says)
	if connect.IsDown(err) != down && !says("wants a client certificate") { // which it says, or just resets the connection
		t.Errorf("%q: is down: %t: %v", args, !down, err)
	}
	for _, want := range append(wants, "") {
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, secret) || strings.Contains(text, "wr0ng") {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestSingle(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	srv := redistest.Start(t, redistest.WithConfig("unixsocket", socket))
	if s := open(t, connect.Single, "-u", srv.Addr(), "--prefix", "app:", "-n", "3"); s.Addr != srv.Addr() || s.Prefix != "app:" {
		t.Errorf("%q, %q", s.Addr, s.Prefix)
	} else if err := s.Set(t.Context(), "k", 1, 0).Err(); err != nil || srv.Client(t).Exists(t.Context(), "k").Val() != 0 {
		t.Errorf("database 3: %v", err)
	}
	open(t, connect.Single, "-u", socket)
	open(t, connect.Single, "-u", "unix://"+socket+"?db=1")
	open(t, connect.Single, "-u", srv.Addr(), "--user", "default", "--password-file", file(t, secret)) // any password will do there
	refuses(t, connect.ErrConnect, []string{srv.Addr(), "out of range"}, "-u", srv.Addr(), "-n", "99")
	refuses(t, connect.ErrUsage, []string{srv.Addr(), "one address"}, "-u", srv.Addr()+","+redistest.Start(t).Addr())
	refuses(t, connect.ErrUsage, []string{"--sentinel-master", "no Sentinel"}, "-u", srv.Addr(), "--sentinel-master", "x")
	refuses(t, connect.ErrConnect, []string{srv.Addr(), "without --tls"}, "-u", "rediss://"+srv.Addr(), "--timeout", "300ms")
	refuses(t, connect.ErrConnect, []string{srv.Addr(), "WRONGPASS", "nobody", connect.EnvPassword}, "-u", srv.Addr(), "--user", "nobody", "--password-file", file(t, "wr0ng"))
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	acl := func(rules string) []string { return append([]string{"on", ">" + secret}, strings.Fields(rules)...) }
	srv := redistest.Start(t, redistest.WithPassword(secret),
		redistest.WithUser("reader", acl("~* +@read +time")...), // no PING, no CLIENT, no HELLO
		redistest.WithUser("nobody", acl("-@all")...),
		redistest.WithUser("off", "off", ">"+secret))
	addr, right, wrong := srv.Addr(), file(t, secret+"\nmore"), file(t, "wr0ng")
	open(t, connect.Single, "-u", addr, "--password-file", right)
	open(t, connect.Single, "-u", addr, "--password-file", right, "--user", "default")
	if s := open(t, connect.Single, "-u", "reader@"+addr, "--password-file", right); s.Get(t.Context(), "x").Err() == nil {
		t.Error("no such key, and no error")
	}
	if s := open(t, connect.Single, "-u", addr, "--password-file", right, "--user", "nobody"); !strings.Contains(fmt.Sprint(s.Get(t.Context(), "x").Err()), "NOPERM") {
		t.Error("it may do nothing, and isn't refused")
	}
	refuses(t, connect.ErrConnect, []string{addr, "NOPERM", "nobody", "ACL SETUSER"}, "-u", addr, "--password-file", right, "--user", "nobody", "-n", "1")
	refuses(t, connect.ErrConnect, []string{addr, "NOAUTH", connect.EnvPassword, "--password-file"}, "-u", addr)
	refuses(t, connect.ErrConnect, []string{addr, "WRONGPASS", "default"}, "-u", addr, "--password-file", wrong)
	refuses(t, connect.ErrConnect, []string{addr, "WRONGPASS", "reader"}, "-u", addr, "--password-file", wrong, "--user", "reader")
	refuses(t, connect.ErrConnect, []string{addr, "WRONGPASS", "nosuch"}, "-u", addr, "--password-file", right, "--user", "nosuch")
	refuses(t, connect.ErrConnect, []string{addr, "WRONGPASS", "off"}, "-u", addr, "--password-file", right, "--user", "off")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0, redistest.WithPassword(secret))
	right := file(t, secret)
	var addrs []string
	for _, n := range cluster.Nodes {
		addrs = append(addrs, n.Addr())
	}
	for _, address := range []string{addrs[1], strings.Join(addrs, ","), fmt.Sprintf("127.0.0.1:%d,%s", redistest.FreePort(t), addrs[0])} {
		s := open(t, connect.Cluster, "-u", address, "--password-file", right)
		for i := range 20 {
			if err := s.Set(t.Context(), fmt.Sprint("key", i), 1, 0).Err(); err != nil {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
	refuses(t, connect.ErrUsage, []string{"Cluster", "no database but 0", "2"}, "-u", addrs[0]+"/2", "--password-file", right)
	refuses(t, connect.ErrConnect, []string{"NOAUTH", connect.EnvPassword}, "-u", addrs[0])
	refuses(t, connect.ErrConnect, []string{"WRONGPASS"}, "-u", addrs[0], "--password-file", file(t, "wr0ng"))
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 0, redistest.WithPassword(secret))
	right := file(t, secret)
	var addrs []string
	for _, s := range set.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	for _, args := range [][]string{
		{"-u", addrs[0]},
		{"-u", strings.Join(addrs, ",")},
		{"-u", addrs[1], "--sentinel-master", redistest.SentinelName},
		{"-u", fmt.Sprintf("127.0.0.1:%d,%s", redistest.FreePort(t), addrs[2])},
	} {
		s := open(t, connect.Sentinel, append(args, "--password-file", right)...)
		if err := s.Set(t.Context(), "key", 1, 0).Err(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if !strings.Contains(s.Addr, redistest.SentinelName+" at ") {
			t.Errorf("address %q", s.Addr)
		}
	}
	refuses(t, connect.ErrUsage, []string{"--sentinel-master other", addrs[0], "knows only " + redistest.SentinelName},
		"-u", addrs[0], "--sentinel-master", "other", "--password-file", right)
	refuses(t, connect.ErrConnect, []string{addrs[0], "NOAUTH", connect.EnvPassword}, "-u", addrs[0])
	refuses(t, connect.ErrConnect, []string{addrs[0], "WRONGPASS"}, "-u", addrs[0], "--password-file", file(t, "wr0ng"))

	admin := set.Sentinels[1].Client(t)
	if err := admin.Do(t.Context(), "sentinel", "monitor", "second", "127.0.0.1", redistest.FreePort(t), 2).Err(); err != nil {
		t.Fatal(err)
	}
	refuses(t, connect.ErrUsage, []string{"second", redistest.SentinelName, "--sentinel-master"}, "-u", addrs[1], "--password-file", right)
	for _, name := range []string{"second", redistest.SentinelName} {
		if err := admin.Do(t.Context(), "sentinel", "remove", name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	refuses(t, connect.ErrUsage, []string{"knows no primary"}, "-u", addrs[1], "--password-file", right)

	// Sentinels with a password of their own.
	if err := set.Sentinels[2].Client(t).Do(t.Context(), "acl", "setuser", "default", "resetpass", ">"+secret).Err(); err != nil {
		t.Fatal(err)
	}
	refuses(t, connect.ErrConnect, []string{addrs[2], "NOAUTH", connect.EnvSentinelAuth}, "-u", addrs[2], "--password-file", right)
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	a, b := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	// What refuses is told at once, and not after the timeout.
	refuses(t, connect.ErrConnect, []string{a, "refused"}, "-u", a, "--timeout", "24h")
	refuses(t, connect.ErrConnect, []string{a, b, "refused"}, "-u", a+","+b, "--timeout", "24h")
	refuses(t, connect.ErrConnect, []string{"/nowhere/s", "no such file"}, "-u", "/nowhere/s", "--timeout", "24h")
	refuses(t, connect.ErrConnect, []string{"nowhere.invalid"}, "-u", "nowhere.invalid:1", "--timeout", "1s")
}

func TestSilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	addr := listener.Addr().String()
	for _, args := range [][]string{{"-u", addr}, {"-u", "rediss://" + addr}} {
		began := time.Now()
		refuses(t, connect.ErrConnect, []string{addr, "no answer within --timeout 300ms"}, append(args, "--timeout", "300ms")...)
		if took := time.Since(began); took < 300*time.Millisecond {
			t.Errorf("%q: took %v", args, took)
		}
	}
	// One that is asked after it answers.
	srv := redistest.Start(t)
	refuses(t, connect.ErrUsage, []string{"one address"}, "-u", addr+","+srv.Addr(), "--timeout", "2s")

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := flags(t, "-u", addr, "--timeout", "24h").Open(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, connect.ErrConnect) {
		t.Error(err)
	}
}

// authority is a CA, with its files.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca := &authority{dir: t.TempDir()}
	ca.key = newKey(t)
	ca.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lockdog test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.issue(t, "ca", ca.cert, ca.key)
	return ca
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue writes NAME.crt and NAME.key.
func (ca *authority) issue(t *testing.T, name string, template *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for end, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(ca.path(name+end), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (ca *authority) path(name string) string { return filepath.Join(ca.dir, name) }

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	for i, name := range []string{"server", "client"} {
		ca.issue(t, name, &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"redis.example"}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}, newKey(t))
	}
	secure := func(clients string) string {
		port := redistest.FreePort(t)
		redistest.Start(t, redistest.WithConfig("tls-port", fmt.Sprint(port)), redistest.WithConfig("tls-auth-clients", clients),
			redistest.WithConfig("tls-ca-cert-file", ca.path("ca.crt")), redistest.WithConfig("tls-cert-file", ca.path("server.crt")),
			redistest.WithConfig("tls-key-file", ca.path("server.key")))
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	addr, strict := secure("no"), secure("yes")
	root := []string{"--cacert", ca.path("ca.crt")}
	args := func(more ...string) []string { return append(more, root...) }
	open(t, connect.Single, args("-u", "rediss://"+addr)...)
	open(t, connect.Single, args("-u", addr, "--tls")...)
	open(t, connect.Single, args("-u", addr, "--tls", "--sni", "redis.example")...)
	open(t, connect.Single, "-u", "rediss://"+addr, "--insecure")
	open(t, connect.Single, args("-u", "rediss://"+strict, "--cert", ca.path("client.crt"), "--key", ca.path("client.key"))...)
	refuses(t, connect.ErrConnect, []string{addr, "unknown authority", "--cacert"}, "-u", "rediss://"+addr)
	refuses(t, connect.ErrConnect, []string{addr, "unknown authority", "--cacert"}, "-u", "rediss://"+addr, "--cacert", other.path("ca.crt"))
	refuses(t, connect.ErrConnect, []string{addr, "--sni"}, args("-u", "rediss://"+addr, "--sni", "other.example")...)
	refuses(t, connect.ErrConnect, []string{strict, "--cert and --key"}, args("-u", "rediss://"+strict)...)
	refuses(t, connect.ErrConnect, []string{addr, "--tls"}, "-u", addr)
	refuses(t, connect.ErrUsage, []string{"--cert, --key"}, args("-u", "rediss://"+addr, "--cert", ca.path("client.crt"), "--key", ca.path("server.key"))...)
}
