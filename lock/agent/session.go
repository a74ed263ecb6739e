package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// The limits of one client.
const (
	helloTime   = 5 * time.Second // to send the header of a request
	replyTime   = time.Second     // to read a reply
	maxRequests = 64              // at a time
)

// session serves one client until its connection ends, or sends something else than requests.
func (a *Agent) session(w http.ResponseWriter, r *http.Request) {
	s := &session{agent: a, out: json.NewEncoder(w), rc: http.NewResponseController(w)}
	w.Header().Set("Connection", "close")
	w.Header().Set("Content-Type", "application/jsonl")
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), agentlink.Scheme)
	if !ok {
		http.Error(w, "no secret: Authorization: "+agentlink.Scheme+"<secret>", http.StatusUnauthorized)
		return
	}
	s.digits = script.DigitsOf(secret)
	if err := s.rc.EnableFullDuplex(); err != nil {
		http.Error(w, err.Error(), http.StatusHTTPVersionNotSupported)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.alive, cancel)()
	stopReading := func() { _ = s.rc.SetReadDeadline(time.Unix(1, 0)) }
	defer stopReading() // otherwise the server would wait for the end of the body
	defer s.begin(visitorOf(r))()
	_ = s.rc.SetReadDeadline(time.Time{}) // not that of the header
	defer context.AfterFunc(ctx, stopReading)()
	s.reply(agentlink.Hello{Clock: time.Since(a.started).Milliseconds()})
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, agentlink.MaxLine)
	free := make(chan struct{}, maxRequests)
	defer s.requests.Wait()
	for lines.Scan() {
		var req agentlink.Request
		s.holds.user.reading.Lock()
		err := json.Unmarshal(lines.Bytes(), &req)
		s.holds.user.reading.Unlock()
		if err != nil {
			s.reply(agentlink.Reply{Renewed: []int{}, Error: "not a request: " + err.Error()})
			return
		}
		if err := req.Check(s.digits); err != nil {
			s.reply(agentlink.Reply{ID: req.ID, Renewed: []int{}, Error: err.Error()})
			continue
		}
		if len(req.Leases) == 0 {
			s.holds.note(&req)
			continue
		}
		a.requests.Add(1)
		size := len(lines.Bytes())
		if !s.holds.user.take(size) {
			s.reply(agentlink.Reply{ID: req.ID, Renewed: []int{}, Error: "this user asks for too much at a time"})
			continue
		}
		free <- struct{}{}
		s.requests.Go(func() {
			s.reply(s.serve(ctx, &req))
			s.holds.user.give(size)
			<-free
		})
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		s.reply(agentlink.Reply{Renewed: []int{}, Error: err.Error()})
	}
}

type session struct {
	agent    *Agent
	digits   string // in the client's owners
	holds    holds
	requests sync.WaitGroup

	mu  sync.Mutex // must be held to write
	out *json.Encoder
	rc  *http.ResponseController
}

// begin makes the client's locks free when its process dies. end is called when the session ends; the process may be
// found to have died for some time after that.
func (s *session) begin(v *visitor) (end func()) {
	s.holds = holds{agent: s.agent, visitor: v, held: map[string]*agentlink.Hold{}}
	v.stay()
	v.user.add(&s.holds)
	leave := func() {
		s.holds.forget()
		v.leave()
	}
	p, err := processAt(v.Conn, v.peer)
	if err != nil {
		s.agent.cannotWatch(err)
		return func() {
			v.user.remove(&s.holds)
			s.holds.endSession()
			leave()
		}
	}
	s.agent.watching.Go(func() {
		if p.died() {
			s.holds.died()
		}
		p.close()
		leave()
	})
	return func() {
		v.user.remove(&s.holds)
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
