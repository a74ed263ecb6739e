package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/proc"
)

const (
	logName = "redis.log"

	startTries = 5
)

// Server is one redis-server process. Its methods that change the process may
// be called from one goroutine at a time.
type Server struct {
	cfg   config
	port  int
	dir   string
	admin *redis.Client

	mu   sync.Mutex
	proc *proc.Process
	own  map[string]int64 // commands of this package that Commands leaves out, by name
}

// Start starts a server for this test, and waits until it answers. It
// ends with the test.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s, err := startServer(newConfig(opts))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// startServer starts a server. It tries another port if another process takes the port first.
func startServer(cfg config) (*Server, error) {
	bin, err := cfg.binary()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s, err := startOnFreePort(bin, cfg)
		if err == nil {
			return s, nil
		}
		if try == startTries || !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
}

// errPortTaken means that another process took the port between takePort and the server's bind.
var errPortTaken = errors.New("redistest: port taken by another process")

func startOnFreePort(bin string, cfg config) (*Server, error) {
	port, err := takePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lockdog-redis-")
	if err != nil {
		return nil, fmt.Errorf("redistest: folder for a server: %w", err)
	}
	s := &Server{cfg: cfg, port: port, dir: dir, own: make(map[string]int64)}
	s.admin = redis.NewClient(&redis.Options{
		Addr:     s.Addr(),
		Username: adminUser,
		Password: cfg.adminPassword,
		// One connection with a short start: tests look at the counts of commands, which should include few of ours.
		PoolSize:        1,
		ReadTimeout:     patience, // go-redis repeats a command after a timeout, but own counts it once
		Protocol:        2,
		DisableIdentity: true,
	})
	if err := os.WriteFile(s.confPath(), []byte(cfg.text(port, dir)), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("redistest: redis.conf: %w", err), s.stop())
	}
	if err := s.launch(bin); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (c config) binary() (string, error) {
	name := os.Getenv("LOCKDOG_REDIS_SERVER")
	if old := os.Getenv(before7Env); c.before7 && old != "" {
		name = old
	}
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

func (s *Server) confPath() string { return filepath.Join(s.dir, "redis.conf") }

// launch starts the process, and waits until it accepts our password.
func (s *Server) launch(bin string) error {
	args := []string{s.confPath()}
	if s.cfg.sentinel {
		args = append(args, "--sentinel")
	}
	cmd := exec.Command(bin, args...)
	if len(s.cfg.env) > 0 {
		cmd.Env = append(os.Environ(), s.cfg.env...)
	}
	start := proc.Start
	if s.cfg.apart {
		start = proc.StartApart
	}
	p, err := start(cmd)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	s.setProc(p)
	err = poll(func(ctx context.Context) error {
		if p.Ended() {
			return final(s.died())
		}
		return s.greet(ctx)
	})
	if err != nil {
		return fmt.Errorf("redistest: server on port %d did not start: %w", s.port, err)
	}
	if s.cfg.sentinel {
		return nil // it has no CONFIG RESETSTAT, and its commands aren't counted
	}
	return s.resetStats()
}

// greet returns nil once the server lets us log in and has loaded its data.
func (s *Server) greet(ctx context.Context) error {
	// Dial without go-redis first: after as many refused dials as its pool is large, a go-redis client keeps dialing in
	// the background once a second.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	return errors.Join(conn.Close(), s.admin.Ping(ctx).Err())
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

func (s *Server) setProc(p *proc.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
}

func (s *Server) process() *proc.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// stop ends the process and removes its folder.
func (s *Server) stop() error {
	var errs []error
	errs = append(errs, s.admin.Close())
	if p := s.process(); p != nil {
		errs = append(errs, p.Kill())
	}
	errs = append(errs, os.RemoveAll(s.dir))
	return errors.Join(errs...)
}

// Addr returns host:port.
func (s *Server) Addr() string { return loopback(s.port) }

// Port returns the TCP port. It stays the same after a [Server.Restart].
func (s *Server) Port() int { return s.port }

// PID returns the process id. It changes with a [Server.Restart].
func (s *Server) PID() int { return s.process().PID() }

// Universal returns the options of a client of this server, including the
// password.
func (s *Server) Universal() *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{s.Addr()}, Password: s.cfg.password}
}

// Client returns a client with go-redis's defaults, except for what the functions
// change. It is closed when the test ends.
func (s *Server) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return newClient(tb, s.Universal(), change)
}

func newClient(tb testing.TB, u *redis.UniversalOptions, change []func(*redis.Options)) *redis.Client {
	o := u.Simple()
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	tb.Cleanup(func() { closeClient(tb, c) })
	return c
}

// Open returns a client for the Universal options of any shape. It is closed when
// the test ends.
func Open(tb testing.TB, o *redis.UniversalOptions) redis.UniversalClient {
	tb.Helper()
	c := redis.NewUniversalClient(o)
	tb.Cleanup(func() { closeClient(tb, c) })
	return c
}

func closeClient(tb testing.TB, c redis.UniversalClient) {
	// The test may have closed the client itself. Or the server has closed the connections: then the final message of
	// TLS fails.
	var network net.Error
	if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) && !errors.As(err, &network) {
		tb.Errorf("redistest: close client: %v", err)
	}
}

// Pause stops the process with SIGSTOP. Connections stay open, but get no replies, as on a machine that hangs or a
// network that drops packets. Pausing twice is no error.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	if err := s.process().Signal(syscall.SIGSTOP); err != nil {
		tb.Fatalf("redistest: pause server %d: %v", s.port, err)
	}
}

// Resume makes a paused process continue. It then executes what was sent to it in
// the meantime.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	if err := s.process().Signal(syscall.SIGCONT); err != nil {
		tb.Fatalf("redistest: resume server %d: %v", s.port, err)
	}
}

// Kill ends the process as a crash would. What it hadn't persisted is lost.
// Killing a dead server is no error.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if err := s.process().Kill(); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}
