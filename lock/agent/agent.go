// Package agent renews the leases of all programs on a machine together, and frees the locks of a program that dies.
// Run one agent per machine ("lockdog agent"), and give its socket to the programs' clients: lock.WithAgent.
//
// A client takes and releases its locks by itself, as without an agent. Its renewals go to the agent, which
// collects those of all clients for a moment, a 120th of a lease at most, and makes common calls to Redis. N locks of P
// processes then cost about N/256 calls per renewal interval, or 40 if that is more (for each node, and for each length
// of lease), instead of at least P.
//
// No lease depends on the agent. A renewal counts from before the client asked for it, by the client's clock. What the
// agent doesn't renew in time, the client renews by itself, at once. So an agent that hangs, is stopped, restarted or
// replaced costs calls, but no lease. It keeps no state that must survive it.
//
// A client also tells the agent which locks it holds. When the kernel (Linux 5.3 or later) says that the client's
// process has died, the agent releases them in Redis, and whoever waits for them is woken. A process that is stopped,
// or whose connection ends, hasn't died.
//
// A program in another language takes a lock with POST /v1/locks/{name}, and holds it as long as the connection is
// open: see docs/AGENT.md.
//
// The agent listens only on a Unix socket. A client proves with a secret which locks are its own, so nobody can renew
// or release those of another. What one process, and one user of the machine, may use is limited.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/cleanup"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/renewal"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/telemetry"
)

// Config has the options of an agent. The zero value uses OpenTelemetry's globals and slog's default logger.
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Logger         *slog.Logger

	// Policy is the path of a file of JSON that says which locks users may take with POST /v1/locks:
	//
	//	{"www-data": ["orders:*"], "1000": ["*"], "*": ["shared"]}
	//
	// By the name or the number of a user, or "*" for all users, it lists names of locks. A name that ends with * stands
	// for all that begin like it. It is read at each request. "" lets whoever may open the socket take all.
	Policy string
	// Options are those of the client that takes the locks, such as lock.WithKeyPrefix.
	Options []lock.Option
}

// visitorKey is the key of the visitor in the context of an HTTP request.
type visitorKey struct{}

func visitorOf(r *http.Request) *visitor {
	return r.Context().Value(visitorKey{}).(*visitor) //nolint:forcetypeassert // see New
}

// Agent is an agent. It is safe for concurrent use.
type Agent struct {
	cfg     Config
	backend *backend.Redis
	rec     *telemetry.Recorder
	calls   *dispatch.Dispatcher
	batches *batches
	server  http.Server
	started time.Time // 0 on the agent's clock
	locks   *lock.Client

	cleaner   *cleanup.Cleaner // frees the locks of processes that have died
	held      atomic.Int64     // by clients whose sessions aren't over, and by connections
	freed     atomic.Int64
	watching  sync.WaitGroup // for processes to die
	unwatched sync.Once      // to log that the kernel doesn't tell who dies

	alive    context.Context // until Close
	stop     context.CancelFunc
	locked   sync.WaitGroup // connections that hold locks, or wait for them
	listing  sync.Mutex     // one list of locks at a time
	gaveUp   chan struct{}  // closed when the locks of connections are given up
	closing  sync.Once
	closeErr error
	usage    usage
	requests atomic.Int64
}

// New returns an agent that renews and releases through rdb: a *redis.Client (also of NewFailoverClient) or a
// *redis.ClusterClient, for the same servers and database as the clients'. An error that matches lock.ErrInvalid says
// what is wrong with rdb or its settings. The program closes rdb after Close.
func New(rdb redis.UniversalClient, cfg Config) (*Agent, error) {
	if cfg.Policy != "" {
		if _, err := readPolicy(cfg.Policy); err != nil {
			return nil, fmt.Errorf("%w: the policy: %w", lock.ErrInvalid, err)
		}
	}
	be, err := backend.NewRedis(rdb, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lock.ErrInvalid, err)
	}
	if be.Topology() != "" {
		return nil, fmt.Errorf("%w: not for this Redis client: %w", lock.ErrInvalid, agentlink.ErrLayout)
	}
	rec, err := telemetry.NewRecorder(telemetry.Config{
		TracerProvider: cfg.TracerProvider, MeterProvider: cfg.MeterProvider, Logger: cfg.Logger,
	})
	if err != nil {
		_ = be.Close()
		return nil, fmt.Errorf("lockdog: the meter provider refuses an instrument: %w", err)
	}
	locks, err := lock.New(rdb, append([]lock.Option{
		lock.WithTracerProvider(cfg.TracerProvider), lock.WithMeterProvider(cfg.MeterProvider),
		lock.WithLogger(cfg.Logger),
	}, cfg.Options...)...)
	if err != nil {
		rec.Close()
		_ = be.Close()
		return nil, err
	}
	a := &Agent{
		cfg: cfg, locks: locks, backend: be, rec: rec, cleaner: cleanup.New(), started: time.Now(),
		usage: usage{limits: defaultLimits, users: make(map[uint32]*user)}, gaveUp: make(chan struct{}),
	}
	a.calls = dispatch.New(dispatch.Config{Backend: be, Recorder: rec, Panicked: a.panicked})
	a.batches = &batches{
		caller:   renewal.Caller{Dispatcher: a.calls, Backend: be, Recorder: rec},
		panicked: a.panicked, waiting: make(map[class]*batch),
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST "+agentlink.Path, a.session)
	routes.HandleFunc("POST /v1/locks/{name...}", a.holdLock)
	routes.HandleFunc("GET /v1/locks", a.listLocks)
	routes.HandleFunc("GET /v1/status", a.status)
	routes.Handle("/debug/locks", onlyForOwner(lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{locks}})))
	a.alive, a.stop = context.WithCancel(context.Background())
	a.server = http.Server{
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, visitorKey{}, c) // see listener
		},
		Handler:     routes,
		ReadTimeout: helloTime, WriteTimeout: helloTime, IdleTimeout: helloTime, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(a.logger().Handler(), slog.LevelWarn),
	}
	return a, nil
}

// Listen makes a Unix socket that only users with the rights of mode may open. It replaces a socket that is at path, so
// that a new agent takes over from an old one: the old one keeps the connections that it has.
func Listen(path string, mode os.FileMode) (net.Listener, error) {
	if err := notAFile(path); err != nil {
		return nil, err
	}
	if most := agentlink.MaxPath - len("/.0123456789/s"); len(filepath.Dir(path)) > most {
		return nil, fmt.Errorf("the directory of the socket %s: must have %d bytes at most", path, most)
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".") // nobody else may open the socket before it has its rights
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	first := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(first, mode); err == nil {
		err = os.Rename(first, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// notAFile returns an error if there is something other than a socket at path.
func notAFile(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is there already, and is no socket", path)
	}
	return nil
}

// Serve serves clients until Close, and then returns nil. Several calls for several listeners may run at a time.
func (a *Agent) Serve(l net.Listener) error {
	if err := a.server.Serve(&listener{l, &a.usage}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close answers what was asked before, which takes three seconds at most, and ends all connections. The clients renew
// by themselves then. A connection that has said nothing yet may cost two seconds more. Whoever holds a lock by a
// connection is told that the agent ends, and Close waits for the end of that connection, and renews its lease until
// then. If ctx ends first, Close ends the connections at once, locks that are still held by one stay taken until their
// leases end, and the error says so. Later calls return what the first one did.
func (a *Agent) Close(ctx context.Context) error {
	a.closing.Do(func() {
		a.stop()
		closed := make(chan error, 1)
		go func() { closed <- a.locks.Close(ctx) }()
		a.closeErr = a.server.Shutdown(ctx)
		if a.closeErr != nil {
			_ = a.server.Close()
		}
		a.closeErr = errors.Join(a.closeErr, <-closed)
		close(a.gaveUp) // what is still held isn't released, because its holders may not have stopped
		a.locked.Wait()
		a.watching.Wait()
		a.cleaner.Close(ctx)
		a.calls.Close()
		a.closeErr = errors.Join(a.closeErr, a.backend.Close())
		a.rec.Close()
	})
	return a.closeErr
}

// Status is what GET /v1/status answers.
type Status struct {
	Sessions int       `json:"sessions"` // of clients, now
	Requests int64     `json:"requests"` // of clients, since the start
	Calls    int64     `json:"calls"`    // batches renewed in Redis
	Renewed  int64     `json:"renewed"`  // leases, each time
	Held     int64     `json:"held"`     // locks, as their clients say
	Freed    int64     `json:"freed"`    // locks of processes that have died
	Started  time.Time `json:"started"`
	PID      int       `json:"pid"`
}

// Status returns what the agent has done.
func (a *Agent) Status() Status {
	return Status{
		Sessions: a.usage.holders(), Requests: a.requests.Load(), Calls: a.batches.calls.Load(),
		Renewed: a.batches.renewed.Load(), Held: a.held.Load(), Freed: a.freed.Load(),
		Started: a.started, PID: os.Getpid(),
	}
}

func (a *Agent) status(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.Status())
}

func (a *Agent) logger() *slog.Logger {
	if a.cfg.Logger != nil {
		return a.cfg.Logger
	}
	return slog.Default()
}

// cannotWatch logs why the agent isn't told when a client's process dies.
func (a *Agent) cannotWatch(err error) {
	switch {
	case errors.Is(err, syscall.ESRCH), errors.Is(err, syscall.EINVAL): // it has died before it said anything
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.ENOPROTOOPT):
		a.unwatched.Do(func() {
			a.logger().Warn("lockdog: the kernel doesn't tell when clients die; their locks then last for a lease", "error", err)
		})
	default:
		a.logger().Warn("lockdog: can't watch a client's process; if it dies, its locks last for a lease", "error", err)
	}
}

// tooMany logs that the agent doesn't keep all locks of a user.
func (a *Agent) tooMany(u *user) {
	a.logger().Warn("lockdog: a user holds more locks than the agent keeps; if their processes die, the others last for a lease",
		"uid", u.id)
}

func (a *Agent) panicked(v any, stack []byte) {
	defer func() { _ = recover() }() // the logger may be what panics
	a.logger().Error("lockdog: survived a panic", "panic", fmt.Sprint(v), "stack", string(stack))
}
