package backend

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// stream sends scripts one after the other over one connection, without waiting for the replies in between. If the
// server is far away, the stream replaces many connections of a pool, each of which would wait for a round trip.
//
// It is for a single server: with Sentinel, go-redis closes connections to a replaced primary only in the program's own
// pool, and the hooks of a ClusterClient or a Ring can't be run without its pools.
//
// It uses go-redis's full-duplex AutoPipeline, which is experimental. Only this file knows that.
type stream struct {
	programs *redis.Client   // nil: there can be no stream
	ctx      context.Context // ends when the stream is closed: then nothing is dialed any more
	cancel   context.CancelFunc
	running  sync.WaitGroup // connect, and the closing of dropped pipes

	mu      sync.Mutex
	pipe    *pipe     // in use; nil: none
	opening bool      // connect runs
	retryAt time.Time // no pipe is opened before
}

// pipe is one connection of a stream. A pipe whose connection is lost isn't used again: otherwise go-redis would make
// calls wait for a second connection, and if the server refused that one, the calls would get the refusal as their
// error.
type pipe struct {
	own    *redis.Client // has the connection
	auto   *redis.AutoPipeliner
	hooked *redis.Conn   // has the hooks of the program's client, and then lastHook; it never uses a connection
	pool   *redis.Client // the program's pool, without hooks
}

// streamPause is the least time from the loss of a pipe, or from a failure to open one, until another one is opened.
const streamPause = 5 * time.Second

// pipeStalled is how long a pipe may take for a reply. A pipe that takes longer isn't used any more: perhaps only its
// connection hangs, and later calls would wait behind the calls on it. It is longer than the round trip to any place on
// Earth.
const pipeStalled = 500 * time.Millisecond

var errPipeLost = errors.New("lockdog: a pipe connects only once")

// newStream returns a stream beside a program's client, without any I/O.
func newStream(rdb redis.UniversalClient) *stream {
	s := &stream{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	c, ok := rdb.(*redis.Client)
	if ok && c.Options().Addr != sentinelled && c.Options().Limiter == nil { // a Limiter must see all calls
		s.programs = c
	}
	return s
}

// current returns the pipe in use; nil: there is none.
func (s *stream) current() *pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pipe
}

// open begins to open a pipe, unless there is one, one is being opened, there can be none (any more), or it is too
// early for another.
func (s *stream) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs != nil && s.pipe == nil && !s.opening && s.ctx.Err() == nil && !time.Now().Before(s.retryAt) {
		s.opening = true
		s.running.Go(s.connect)
	}
}

// connect opens a pipe, and puts it to use if its first command succeeds and the stream isn't closed.
func (s *stream) connect() {
	p, err := s.newPipe()
	if err == nil {
		err = p.auto.Submit(context.Background(), ping()).Wait()
	}
	s.mu.Lock()
	s.opening = false
	ok := err == nil && s.ctx.Err() == nil
	if ok {
		s.pipe = p
	} else {
		s.retryAt = time.Now().Add(streamPause)
	}
	s.mu.Unlock()
	if !ok && p != nil {
		p.close()
	}
}

// newPipe returns a pipe that isn't connected yet. It has the hooks that the program has added so far. It fails if
// go-redis doesn't accept the options of the program's client for a pipe, or if a hook of the program panics.
func (s *stream) newPipe() (p *pipe, err error) {
	defer func() {
		if v := recover(); v != nil { // go-redis calls methods of the program's hooks again
			p, err = nil, &redisfail.PanicError{Value: v}
		}
	}()
	o := ownOptions(s.programs, 1)
	o.PipelinePoolSize = 1
	if o.WriteTimeout <= 0 { // a server that stops reading would keep the calls for ever
		o.WriteTimeout = o.ReadTimeout
	}
	o.Dialer = dialOnce(s.ctx, o.Dialer)
	own := redis.NewClient(o)
	auto, err := own.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{FullDuplex: true})
	if err != nil {
		_ = own.Close()
		return nil, err
	}
	p = &pipe{
		own: own, auto: auto,
		hooked: s.programs.Conn(), pool: s.programs.WithTimeout(s.programs.Options().ReadTimeout),
	}
	p.hooked.AddHook(lastHook{s, p})
	return p, nil
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialOnce returns a dialer that dials once only, and gives up when life ends.
func dialOnce(life context.Context, dial dialer) dialer {
	var dialed atomic.Bool
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errPipeLost}
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		return dial(ctx, network, addr)
	}
}

// close waits for the commands in flight, and closes the connection.
func (p *pipe) close() { _ = p.own.Close() }

func ping() redis.Cmder { return noRetry{redis.NewCmd(context.Background(), "ping")} }

// lastHook sends commands over a pipe. It comes after the program's hooks: a command that one of them stops isn't sent.
type lastHook struct {
	s *stream
	p *pipe
}

// ProcessHook implements redis.Hook.
func (h lastHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer time.AfterFunc(pipeStalled, func() { h.s.drop(h.p) }).Stop()
		err := h.p.auto.Submit(context.WithoutCancel(ctx), cmd).Wait()
		if err != nil && isSpoiled(err) {
			h.s.drop(h.p)
		}
		if redisfail.IsUnsent(err) {
			cmd.SetErr(nil)
			return h.p.pool.Process(ctx, cmd)
		}
		return err
	}
}

// isSpoiled reports whether a connection must not be used any more after an error: it broke or is silent, is subscribed
// to a channel, or leads to a server that was demoted, is loading, or wants another password.
func isSpoiled(err error) bool {
	return redisfail.MayHaveMoved(err) || redisfail.IsListening(err) || redisfail.IsUnauthenticated(err) ||
		redisfail.IsUnsent(err)
}

// DialHook implements redis.Hook.
func (lastHook) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

// ProcessPipelineHook implements redis.Hook.
func (lastHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// drop stops using a pipe. Another one is opened later.
func (s *stream) drop(p *pipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipe == p {
		s.pipe, s.retryAt = nil, time.Now().Add(streamPause)
		s.running.Go(p.close)
	}
}

// close waits for the commands in flight, and closes the connections.
func (s *stream) close() {
	s.mu.Lock()
	p := s.pipe
	s.pipe = nil
	s.cancel()
	s.mu.Unlock()
	if p != nil {
		p.close()
	}
	s.running.Wait()
}
