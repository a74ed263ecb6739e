package lock_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/telemetry"
)

// authority is a CA of our own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca := &authority{key: newKey(t), pool: x509.NewCertPool(), dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lockdog test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &ca.key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.pool.AddCert(ca.cert)
	ca.write(t, "ca.crt", "CERTIFICATE", der)
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

func (ca *authority) path(name string) string { return filepath.Join(ca.dir, name) }

func (ca *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(ca.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue makes a certificate for this machine, in NAME.crt and NAME.key.
func (ca *authority) issue(t *testing.T, name string, serial int64) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca.write(t, name+".crt", "CERTIFICATE", der)
	ca.write(t, name+".key", "EC PRIVATE KEY", private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A server that wants a certificate and a password: every connection of the client has both, those for renewals and for
// messages too; and neither a right nor a wrong password is anywhere to be seen.
func TestTLSAndSecrets(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.issue(t, "server", 2)
	mine := ca.issue(t, "client", 3)
	port := redistest.FreePort(t)
	right, wrong := "right-"+rand.Text(), "wrong-"+rand.Text()
	srv := redistest.Start(t, redistest.WithUser("app", append([]string{"on", ">" + right}, strings.Fields(appACL)...)...),
		redistest.WithConfig("tls-port", fmt.Sprint(port)), redistest.WithConfig("tls-auth-clients", "yes"), redistest.WithConfig("tls-ca-cert-file", ca.path("ca.crt")),
		redistest.WithConfig("tls-cert-file", ca.path("server.crt")), redistest.WithConfig("tls-key-file", ca.path("server.key")))
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	secured := func() *tls.Config { return &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{mine}} }
	secure := func(password string) func(*redis.Options) {
		return func(o *redis.Options) {
			o.Addr, o.Username, o.Password = addr, "app", password
			o.DialerRetries = 1
			o.TLSConfig = secured()
		}
	}
	app := newACLUser(t, "app", []*redistest.Server{srv}, strings.Fields(appACL))
	app.patient()
	app.change = func(o *redis.UniversalOptions) { o.Addrs, o.Password, o.TLSConfig = []string{addr}, right, secured() }
	s := app.scope
	if err := app.counted(aclKinds["Mutex"](app)); err != nil {
		t.Errorf("over TLS: %v", err)
	}

	// Its connections stand yet: one for commands, one for renewals, and one that listens.
	listening, asking := 0, 0
	for line := range strings.Lines(srv.Client(t).ClientList(t.Context()).Val()) {
		switch {
		case !strings.Contains(line, " user=app "):
			continue
		case !strings.Contains(line, fmt.Sprintf(" laddr=127.0.0.1:%d ", port)):
			t.Errorf("a connection without TLS: %s", line)
		case strings.Contains(line, " sub=0 "):
			asking++
		default:
			listening++
		}
	}
	if listening == 0 || asking < 2 {
		t.Errorf("%d connections listen, %d ask; want 1 and at least 2", listening, asking)
	}

	// Who is refused is told why, and never with the password.
	var said []string
	refused := func(what string, kind telemetry.ErrorType, change func(*redis.Options)) {
		t.Helper()
		sc := newScope(t)
		c := sc.open(t, srv.Client(t, change))
		_, err := c.Mutex("job:1").TryLock(t.Context())
		if n := sc.sum(t, telemetry.MetricErrors, "error.type="+string(kind)); err == nil || n == 0 {
			t.Errorf("%s: %v, counted %v", what, err, sc.series(t, telemetry.MetricErrors))
		}
		if n := sc.sent(t, telemetry.PurposeAcquire); what == "a CA that isn't known" && n > 0 {
			t.Errorf("%s: %d commands counted as sent", what, n)
		}
		said = append(said, fmt.Sprintf("%v %+v", err, err), everythingOf(t, sc, c))
	}
	refused("a wrong password", telemetry.ErrorACL, secure(wrong))
	refused("a CA that isn't known", telemetry.ErrorNetwork, func(o *redis.Options) {
		secure(right)(o)
		o.TLSConfig.RootCAs = x509.NewCertPool()
	})
	refused("no certificate", telemetry.ErrorNetwork, func(o *redis.Options) {
		secure(right)(o)
		o.TLSConfig.Certificates = nil
	})

	// A renewal that is refused later, too. It comes at once, as after a forced unlock.
	c := s.open(t, srv.Client(t, secure(right)), lock.WithLease(far), lock.WithClientID("later"))
	l := try(t, c.Mutex("job:9"))
	admin := srv.Client(t)
	must(t, "ACL SETUSER", admin.Do(t.Context(), "acl", "setuser", "app", "-evalsha").Err())
	eventually(t, patience, func() bool {
		haveLook(t, admin, l.Owner())
		return len(s.records(t, telemetry.LogFail)) > 0
	})
	said = append(said, fmt.Sprint(l.Release(t.Context())), everythingOf(t, s, c))

	for _, text := range said {
		for _, secret := range []string{right, wrong, "PRIVATE KEY"} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("a secret is to be seen: …%.80q", text[max(at-80, 0):])
			}
		}
	}
	if all := strings.Join(said, ""); !strings.Contains(all, "WRONGPASS") || !strings.Contains(all, "NOPERM") {
		t.Errorf("this isn't what clients say:\n%.2000s", all)
	}
}

// everythingOf is all that a client shows: logs, spans, metrics and its debug page.
func everythingOf(t *testing.T, s *scope, c *lock.Client) string {
	t.Helper()
	var all strings.Builder
	s.mu.Lock()
	all.Write(s.text.Bytes())
	s.mu.Unlock()
	for _, span := range s.spans.GetSpans() {
		fmt.Fprintf(&all, "%+v\n", span)
	}
	var metrics metricdata.ResourceMetrics
	if err := s.reader.Collect(t.Context(), &metrics); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&all, "%+v\n", metrics)
	page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{c}})
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	all.Write(w.Body.Bytes())
	fmt.Fprintf(&all, "%+v %+v", c.Leases(), c.Recent())
	return all.String()
}
