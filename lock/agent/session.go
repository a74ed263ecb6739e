package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
)

// The limits of what clients may use.
const (
	helloTime   = 5 * time.Second // to send the header of a request
	replyTime   = time.Second     // to read a reply
	maxSessions = 4096
	maxRequests = 64 // of one session at a time
)

// session serves one client until its connection ends, or sends something else than requests.
func (a *Agent) session(w http.ResponseWriter, r *http.Request) {
	s := &session{agent: a, out: json.NewEncoder(w), rc: http.NewResponseController(w)}
	s.holds = holds{agent: a, held: map[string]*agentlink.Hold{}}
	w.Header().Set("Connection", "close")
	if err := s.rc.EnableFullDuplex(); err != nil {
		http.Error(w, err.Error(), http.StatusHTTPVersionNotSupported)
		return
	}
	stopReading := func() { _ = s.rc.SetReadDeadline(time.Unix(1, 0)) }
	defer stopReading() // otherwise the server would wait for the end of the body
	defer a.sessions.Add(-1)
	if a.sessions.Add(1) > a.mostSessions {
		http.Error(w, fmt.Sprintf("the agent has %d sessions already", a.mostSessions), http.StatusServiceUnavailable)
		return
	}
	defer s.watch(r.Context())()
	_ = s.rc.SetReadDeadline(time.Time{}) // not that of the header
	defer context.AfterFunc(r.Context(), stopReading)()
	w.Header().Set("Content-Type", "application/jsonl")
	s.reply(agentlink.Hello{Clock: time.Since(a.started).Milliseconds()})
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, agentlink.MaxLine)
	free := make(chan struct{}, maxRequests)
	defer s.requests.Wait()
	for lines.Scan() {
		var req agentlink.Request
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			s.reply(agentlink.Reply{Renewed: []int{}, Error: "not a request: " + err.Error()})
			return
		}
		if len(req.Leases) == 0 && req.Check() == nil {
			s.holds.note(&req)
			continue
		}
		a.requests.Add(1)
		free <- struct{}{}
		s.requests.Go(func() {
			s.reply(s.serve(r.Context(), &req))
			<-free
		})
	}
	if err := lines.Err(); err != nil && r.Context().Err() == nil {
		s.reply(agentlink.Reply{Renewed: []int{}, Error: err.Error()})
	}
}

type session struct {
	agent    *Agent
	holds    holds
	requests sync.WaitGroup

	mu  sync.Mutex // must be held to write
	out *json.Encoder
	rc  *http.ResponseController
}

// watch frees the client's locks when its process dies. end is called when the session ends; the process may be found
// to have died for some time after that.
func (s *session) watch(ctx context.Context) (end func()) {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	p, err := processAt(conn)
	if err != nil {
		s.agent.cannotWatch(err)
		return func() { s.holds.endSession() }
	}
	s.holds.pid = p.pid
	s.agent.watching.Go(func() {
		if p.died() {
			s.holds.died()
		}
		p.close()
	})
	return func() {
		until := time.Now()
		if s.holds.endSession() && s.agent.alive.Err() == nil {
			until = until.Add(deathTime)
		}
		p.waitUntil(until)
	}
}

// serve fulfils a request.
func (s *session) serve(ctx context.Context, req *agentlink.Request) agentlink.Reply {
	reply := agentlink.Reply{ID: req.ID, Renewed: []int{}}
	if err := req.Check(); err != nil {
		reply.Error = err.Error()
		return reply
	}
	now := time.Now()
	left := min(s.agent.started.Add(time.Duration(req.By)*time.Millisecond).Sub(now), agentlink.MaxTime)
	until := now.Add(left - left/10) // the rest is for the reply
	if left <= 0 {
		reply.Error = errTooLate.Error()
		return reply
	}
	ctx, cancel := context.WithDeadlineCause(ctx, until, errTooLate)
	defer cancel()
	if err := s.agent.batches.prepare(ctx, req.Leases[0].Key); err != nil {
		reply.Error = err.Error()
		return reply
	}
	for _, l := range req.Leases {
		if at := s.agent.backend.Node(l.Key); at != req.Node {
			reply.Error = fmt.Sprintf("it has these locks at %q, the client at %q; if that lasts, give both the same address of Redis",
				at, req.Node)
			return reply
		}
	}
	var mu sync.Mutex
	var answers sync.WaitGroup
	asks := make([]ask, len(req.Leases))
	answers.Add(len(asks))
	for i, l := range req.Leases {
		asks[i] = ask{target: targetOf(l), until: until, answer: func(renewed bool, err error) {
			defer answers.Done()
			mu.Lock()
			defer mu.Unlock()
			if renewed {
				reply.Renewed = append(reply.Renewed, i)
			}
			if err != nil && reply.Error == "" {
				reply.Error = fmt.Sprintf("%.512s", err)
			}
		}}
	}
	s.agent.batches.add(req.Node, asks)
	answers.Wait()
	return reply
}

// reply sends a line. If the client doesn't read it in time, its connection ends: a failed write ends r.Context.
func (s *session) reply(line any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.rc.SetWriteDeadline(time.Now().Add(replyTime))
	if s.out.Encode(line) == nil {
		_ = s.rc.Flush()
	}
}
