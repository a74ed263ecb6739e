package redistest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/proc"
)

const (
	logName = "redis.log"

	startTries = 5
)

// Server is one redis-server process. Its methods that change the process may be called from one goroutine at a time.
type Server struct {
	cfg   config
	port  int
	dir   string
	admin *redis.Client
	proc  atomic.Pointer[proc.Process] // nil: it couldn't be started
	infos atomic.Int64                 // INFOs of this package since the start
}

// Start starts a server for this test, and waits until it answers. It ends with the test.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return startServers(tb, newConfig(opts))[0]
}

// startServer starts a server. It tries another port if another process takes the port first.
func startServer(cfg config) (*Server, error) {
	for try := 1; ; try++ {
		s, err := startOnFreePort(cfg)
		if try == startTries || !errors.Is(err, errPortTaken) {
			return s, err
		}
	}
}

// errPortTaken means that another process took the port between takePort and the server's bind.
var errPortTaken = errors.New("redistest: port taken by another process")

func startOnFreePort(cfg config) (*Server, error) {
	port, err := takePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lockdog-redis-")
	if err != nil {
		return nil, fmt.Errorf("redistest: folder for a server: %w", err)
	}
	s := &Server{cfg: cfg, port: port, dir: dir}
	s.admin = redis.NewClient(&redis.Options{
		Addr:     s.Addr(),
		Username: adminUser,
		Password: cfg.adminPassword,
		// One connection with a short start: tests look at the counts of commands, which should include few of ours.
		PoolSize:        1,
		ReadTimeout:     patience, // go-redis repeats a command after a timeout, but infos counts it once
		MaxRetries:      1,        // finds out that a restart has ended the connection
		Protocol:        2,
		DisableIdentity: true,
	})
	err = s.configure()
	if err == nil {
		err = s.launch()
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *Server) confPath() string { return filepath.Join(s.dir, "redis.conf") }

func (s *Server) configure() error {
	return os.WriteFile(s.confPath(), []byte(s.cfg.text(s.port, s.dir)), 0o600)
}

func binary() (string, error) {
	name := os.Getenv("LOCKDOG_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("redistest: a real Redis 7.0 or newer is needed: run"+
			" `apt-get update && apt-get install -y redis-server` (make test does), or set LOCKDOG_REDIS_SERVER: %w", err)
	}
	return path, nil
}

// launch starts the process, and waits until it accepts our password. From then on Commands counts.
func (s *Server) launch() error {
	bin, err := binary()
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, s.confPath())
	if s.cfg.sentinel {
		cmd.Args = append(cmd.Args, "--sentinel")
	}
	cmd.Env = append(os.Environ(), s.cfg.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: s.cfg.apart}
	p, err := proc.Start(cmd)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	s.proc.Store(p)
	err = poll(func() error {
		if p.Ended() {
			return nil // died says why
		}
		return s.greet()
	})
	if p.Ended() {
		err = s.died()
	}
	if err != nil {
		return fmt.Errorf("redistest: server on port %d did not start: %w", s.port, err)
	}
	s.infos.Store(0)
	if s.cfg.sentinel {
		return nil // it has no CONFIG RESETSTAT, and its commands aren't counted
	}
	return s.do("CONFIG", "RESETSTAT").Err()
}

// greet returns nil once the server lets us log in and has loaded its data.
func (s *Server) greet() error {
	// Dial without go-redis first: after as many refused dials as its pool is large, a go-redis client keeps dialing in
	// the background once a second.
	conn, err := net.DialTimeout("tcp", s.Addr(), patience)
	if err != nil {
		return err
	}
	return errors.Join(conn.Close(), s.do("PING").Err())
}

// died returns why the process ended before it answered.
func (s *Server) died() error {
	log, err := os.ReadFile(filepath.Join(s.dir, logName))
	if err != nil {
		return fmt.Errorf("it ended and left no log: %w", err)
	}
	if strings.Contains(string(log), "Address already in use") {
		return errPortTaken
	}
	const tail = 2000
	return fmt.Errorf("it ended, its log: %s", log[max(0, len(log)-tail):])
}

// runs reports whether the process exists; it may be paused.
func (s *Server) runs() bool { return !s.proc.Load().Ended() }

// stop ends the process and removes its folder.
func (s *Server) stop() error {
	err := s.admin.Close()
	if p := s.proc.Load(); p != nil {
		err = errors.Join(err, p.Kill())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Addr returns host:port.
func (s *Server) Addr() string { return loopback(s.port) }

// Port returns the TCP port. It stays the same after a [Server.Restart].
func (s *Server) Port() int { return s.port }

// Universal returns the options of a client of this server, including the password.
func (s *Server) Universal() *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{s.Addr()}, Password: s.cfg.password}
}

// Client returns a client with go-redis's defaults, except for what the functions change. It is closed when the test
// ends.
func (s *Server) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return newClient(tb, s.Universal(), change)
}

func newClient(tb testing.TB, u *redis.UniversalOptions, change []func(*redis.Options)) *redis.Client {
	o := u.Simple()
	for _, f := range change {
		f(o)
	}
	return closing(tb, redis.NewClient(o))
}

// Open returns a client for the Universal options of any shape. It is closed when the test ends.
func Open(tb testing.TB, o *redis.UniversalOptions) redis.UniversalClient {
	tb.Helper()
	return closing(tb, redis.NewUniversalClient(o))
}

// closing returns a client that is closed when the test ends.
func closing[C io.Closer](tb testing.TB, client C) C {
	tb.Cleanup(func() {
		// The test may have closed the client itself. Or the server has closed the connections: then the final message
		// of TLS fails.
		var network net.Error
		if err := client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) && !errors.As(err, &network) {
			tb.Errorf("redistest: close client: %v", err)
		}
	})
	return client
}

// Pause stops the process with SIGSTOP. Connections stay open, but get no replies, as on a machine that hangs or a
// network that drops packets. Pausing twice is no error.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	must(tb, s.proc.Load().Signal(syscall.SIGSTOP))
}

// Resume makes a paused process continue. It then executes what was sent to it in the meantime.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	must(tb, s.proc.Load().Signal(syscall.SIGCONT))
}

// Kill ends the process as a crash would. What it hadn't persisted is lost. Killing a dead server is no error.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	must(tb, s.proc.Load().Kill())
}

// Data says what a restarted server starts with.
type Data bool

// What [Server.Restart] does with the data.
const (
	LoseData Data = false // an empty server, as after a crash without persistence
	KeepData Data = true  // the data as it was: saved first if the server runs, otherwise what was last persisted
)

// Restart ends the process as a crash would, and starts it again on the same port with the same configuration. A
// Cluster node or Sentinel keeps its identity, whatever happens to the data.
func (s *Server) Restart(tb testing.TB, data Data) {
	tb.Helper()
	if data == KeepData && !s.cfg.sentinel && s.runs() {
		must(tb, s.do("SAVE").Err())
	}
	s.Kill(tb)
	forget := []string{logName} // otherwise a failed start would be explained with the log of an earlier start
	if data == LoseData {
		forget = append(forget, "dump.rdb", "appendonlydir")
	}
	for _, name := range forget {
		must(tb, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	must(tb, s.launch())
}
