package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/internal/unixsocket"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// startAgent starts an agent at a socket. stop ends it.
func startAgent(t *testing.T, s *redistest.Socket, rdb redis.UniversalClient) (a *agent.Agent, stop func()) {
	t.Helper()
	tel := newScope(t)
	a, err := agent.New(rdb, agent.Config{TracerProvider: tel.tracer, MeterProvider: tel.meter, Logger: tel.log})
	must(t, "agent.New", err)
	served := make(chan error, 1)
	l := s.Listen()
	go func() { served <- a.Serve(l) }()
	stop = sync.OnceFunc(func() {
		must(t, "closing the agent", a.Close(context.Background()))
		must(t, "serving", <-served)
	})
	t.Cleanup(stop)
	return a, stop
}

// TestAgentRenewsTogether: 50 clients with 20 leases each make no renewal call but their first. The agent makes 40 per interval or fewer, a renewal comes for
// each lease in each interval, and deadlines and expiries move as without an agent.
func TestAgentRenewsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
		a, _ := startAgent(t, socket, srv.Client(t))
		const clients, each, intervals = 50, 20, 5
		var leases []*lock.Lease
		for i := range clients {
			c := tel.open(t, srv.Client(t), lock.WithAgent(socket.Path()))
			for n := range each {
				leases = append(leases, try(t, c.Mutex(fmt.Sprintf("job:%d-%d", i, n))))
			}
			time.Sleep(97 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		before, direct, renewed := a.Status(), tel.sent(t, telemetry.PurposeRenew), tel.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed")
		time.Sleep(intervals * 10 * time.Second)
		after := a.Status()
		if calls := after.Calls - before.Calls; calls > intervals*40 || calls < intervals*clients*each/256 {
			t.Errorf("%d calls in %d intervals", calls, intervals)
		}
		if n := tel.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") - renewed; n < (intervals-1)*clients*each || n > (intervals+1)*clients*each {
			t.Errorf("%v renewals in %d intervals", n, intervals)
		}
		if n := tel.sent(t, telemetry.PurposeRenew) - direct; n != 0 {
			t.Errorf("the clients have sent %d renewals", n)
		}
		for _, l := range leases {
			if left := time.Until(l.Deadline()); l.Err() != nil || left < 19*time.Second || left > 30*time.Second {
				t.Fatalf("%s: %v left, %v", l.Name(), left, l.Err())
			}
			if left := srv.Client(t).PTTL(t.Context(), l.Name()).Val(); left < time.Until(l.Deadline()) {
				t.Fatalf("%s: Redis has it for %v, its holder for %v", l.Name(), left, time.Until(l.Deadline()))
			}
		}
		if after.Sessions != clients {
			t.Errorf("%d sessions of %d clients", after.Sessions, clients)
		}
	})
}

func write(c net.Conn, text string) { _, _ = io.WriteString(c, text) }

// says returns what writes a text into a connection and reads nothing.
func says(text string) func(net.Conn) { return func(c net.Conn) { write(c, text) } }

// answering returns what serves a session: after the head of an answer and a Hello, reply gets each request with its number, and returns a line; "":
// none.
func answering(reply func(id int) string) func(net.Conn) {
	return func(c net.Conn) {
		go func() {
			defer func() { _ = c.Close() }()
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			write(c, "HTTP/1.1 200 OK\r\n\r\n{\"clock\":0}\n")
			lines := bufio.NewScanner(r.Body)
			for id := 1; lines.Scan(); {
				if !strings.Contains(lines.Text(), `"leases"`) { // it says which locks are held
					continue
				}
				if line := reply(id); line != "" {
					write(c, line+"\n")
				}
				id++
			}
		}()
	}
}

// TestAgentFails: whatever becomes of the agent, leases live on, and what was renewed in time isn't renewed late. When an agent is back, it renews
// again.
func TestAgentFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		serve func(net.Conn) // nil: nobody listens
		why   string         // in the log
	}{
		"nobody listens":        {nil, "refused"},
		"hangs up":              {func(c net.Conn) { _ = c.Close() }, "connecting to the agent"},
		"says nothing":          {says(""), "timeout"},
		"isn't an agent":        {says("+PONG\r\n"), "malformed"},
		"is full":               {says("HTTP/1.1 503 Full\r\nContent-Length: 5\r\n\r\nsorry"), "503 Full: sorry"},
		"sends an endless line": {says("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 2<<20)), "too long"},
		"doesn't answer":        {answering(func(int) string { return "" }), "doesn't answer"},
		"answers with an error": {answering(func(id int) string { return fmt.Sprintf(`{"id":%d,"error":"no"}`, id) }), "the agent: no"},
		"renews nothing":        {answering(func(id int) string { return fmt.Sprintf(`{"id":%d,"renewed":[]}`, id) }), "same database"},
		"renews nothing, in a while": {answering(func(id int) string {
			time.Sleep(200 * time.Millisecond)
			return fmt.Sprintf(`{"id":%d,"renewed":[]}`, id)
		}), "same database"},
		"answers others":          {answering(func(id int) string { return fmt.Sprintf(`{"id":%d,"renewed":[0]}`, id+1) }), "doesn't answer"},
		"renews what isn't there": {answering(func(id int) string { return fmt.Sprintf(`{"id":%d,"renewed":[0,7]}`, id) }), "lease 7 of 1"},
		"renews what can't be":    {answering(func(id int) string { return fmt.Sprintf(`{"id":%d,"renewed":[-1]}`, id) }), "lease -1 of 1"},
		"answers with garbage":    {answering(func(int) string { return "[]" }), "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
				c := tel.open(t, srv.Client(t), lock.WithAgent(socket.Path()))
				var open []net.Conn // which the client has to end, if it gives them up
				if fault.serve != nil {
					serve := func(c net.Conn) { open = append(open, c); fault.serve(c) }
					socket.Serve(serve)
				}
				l := try(t, c.Mutex("job"))
				for range 60 {
					time.Sleep(5 * time.Second)
					if left := time.Until(l.Deadline()); l.Err() != nil || left < 12*time.Second {
						t.Fatalf("%v left, %v", left, l.Err())
					}
				}
				time.Sleep(time.Second) // not at the moment of a renewal
				asked := tel.sum(t, telemetry.MetricAgentRequests)
				if failed := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=error"); failed != asked || failed < 3 || failed > 12 {
					t.Errorf("%v requests of the agent, %v failed", asked, failed)
				}
				if n := tel.sum(t, telemetry.MetricRenewals); n != tel.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") || n < 27 || n > 31 {
					t.Errorf("%v renewals in five minutes: %v", n, tel.series(t, telemetry.MetricRenewals))
				}
				_, stop := startAgent(t, socket, srv.Client(t))
				time.Sleep(3 * time.Minute)
				if n := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=ok"); n < 3 {
					t.Errorf("%v requests to the agent that is back", n)
				}
				if log := tel.output(); !strings.Contains(log, fault.why) || strings.Count(log, "\n") != 2 {
					t.Errorf("logged:\n%s", log)
				}
				stop()
				time.Sleep(time.Minute)
				mustMatch(t, l.Err(), nil)
				for _, c := range open {
					_ = c.SetReadDeadline(time.Now().Add(time.Second))
					if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Errorf("a connection that the client no longer uses: %v", err)
					}
				}
			})
		})
	}
}

// TestAgentAndASlowRedis: a Redis that is slow, but answers within the time of an attempt, costs no lease, with an agent as without one, and also
// if the agent is gone from that moment on.
func TestAgentAndASlowRedis(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{lock.MinLease, time.Second, 3 * time.Second, lock.DefaultLease} {
		for _, percent := range []time.Duration{30, 44, 60, 80, 95} { // of an attempt
			for _, gone := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, %d %%, gone %v", lease, percent, gone), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
						p := redistest.NewProxy(t, srv.Addr())
						at := func(o *redis.Options) { o.Addr, o.ReadTimeout = p.Addr(), 10*time.Second }
						_, stop := startAgent(t, socket, srv.Client(t, at))
						l := try(t, tel.open(t, srv.Client(t, at), lock.WithAgent(socket.Path()), lock.WithLease(lease)).Mutex("job"))
						time.Sleep(3 * lease)
						if asked := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=ok") > 0; asked != (lease >= 3*time.Second) {
							t.Errorf("the agent has renewed: %v", asked)
						}
						p.SetRule(redistest.When(redistest.Up, redistest.Delay(lease/6*percent/100), redistest.Contains("eval")))
						if gone {
							stop()
						}
						time.Sleep(20 * lease)
						must(t, "the lease", l.Err())
						p.SetRule(nil)
						must(t, "Release", l.Release(t.Context()))
					})
				})
			}
		}
	}
}

// TestAgentAtAnotherServer: an agent at a server that has a copy of the lock, such as a primary that was replaced, renews nothing for this client.
func TestAgentAtAnotherServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, other, socket, tel := redistest.StartFake(t), redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
		a, _ := startAgent(t, socket, other.Client(t))
		l := try(t, tel.open(t, srv.Client(t), lock.WithAgent(socket.Path())).Mutex("job"))
		copied := other.Client(t)
		must(t, "HSET", copied.HSet(t.Context(), "job", srv.Client(t).HGetAll(t.Context(), "job").Val()).Err())
		must(t, "PEXPIRE", copied.PExpire(t.Context(), "job", 30*time.Second).Err())
		unknown := 0
		for range 120 {
			time.Sleep(time.Second)
			if a.Status().Held != 1 {
				unknown++
			}
		}
		if unknown > 2 { // a new connection may have begun in these 5 ms
			t.Errorf("while the client didn't ask it, the agent didn't know of the lock for %d of 120 s", unknown)
		}
		must(t, "the lease", l.Err())
		if left := srv.Client(t).PTTL(t.Context(), "job").Val(); left < time.Until(l.Deadline()) {
			t.Errorf("Redis has the lock for %v, its holder for %v", left, time.Until(l.Deadline()))
		}
		if n := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=ok"); n != 0 {
			t.Errorf("%v renewals at the other server", n)
		}
		if !strings.Contains(tel.output(), "give both the same address") {
			t.Errorf("logged:\n%s", tel.output())
		}
	})
}

// TestAgentForShortAndLongLeases: requests that have little time don't shorten that of others.
func TestAgentForShortAndLongLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
		p := redistest.NewProxy(t, srv.Addr())
		at := func(o *redis.Options) { o.Addr = p.Addr() }
		_, stop := startAgent(t, socket, srv.Client(t, at))
		for i := range 10 {
			try(t, tel.open(t, srv.Client(t, at), lock.WithAgent(socket.Path())).Mutex(fmt.Sprint("job", i)))
			time.Sleep(97 * time.Millisecond)
		}
		peer, err := unixsocket.Dial(t.Context(), socket.Path())
		must(t, "Dial", err)
		const secret = "s"
		write(peer, "POST /v1/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+secret+"\r\nTransfer-Encoding: chunked\r\n\r\n")
		began, done := time.Now(), make(chan struct{})
		go func() { // what it asks for must be renewed within 10 ms
			defer close(done)
			for id := 0; time.Since(began) < 3*time.Minute; id++ {
				line := fmt.Sprintf(`{"id":%d,"by":%d,"node":%q,"leases":[{"key":"none","owner":"x:%s-1","ms":1000}]}`,
					id, time.Since(began).Milliseconds()+1000+10, p.Addr(), script.DigitsOf(secret))
				write(peer, fmt.Sprintf("%x\r\n%s\n\r\n", len(line)+1, line))
				time.Sleep(20 * time.Millisecond)
			}
			_ = peer.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		p.SetRule(redistest.When(redistest.Up, redistest.Delay(30*time.Millisecond), redistest.Contains("eval"))) // more than that
		<-done
		ok, all := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=ok"), tel.sum(t, telemetry.MetricAgentRequests)
		stop()
		if ok != all || ok < 100 {
			t.Errorf("of %v requests for leases of 30 s %v succeeded", all, ok)
		}
	})
}

// TestAgentThatFailsNowAndThen: an agent that fails half of the time is asked less and less, and that is logged once.
func TestAgentThatFailsNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
		serve := answering(func(id int) string { // by connection: there is a new one after each failure
			if id > 1 {
				return fmt.Sprintf(`{"id":%d,"error":"no"}`, id)
			}
			return fmt.Sprintf(`{"id":%d,"renewed":[0]}`, id) // it is true that Redis has the lock for long enough
		})
		socket.Serve(serve)
		l := try(t, tel.open(t, srv.Client(t), lock.WithAgent(socket.Path())).Mutex("job"))
		time.Sleep(20 * time.Minute)
		must(t, "the lease", l.Err())
		if n := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=error"); n < 10 || n > 30 {
			t.Errorf("%v of the agent's answers in 20 minutes were refusals", n)
		}
		if n := strings.Count(tel.output(), "\n"); n != 1 {
			t.Errorf("%d lines logged:\n%s", n, tel.output())
		}
		if n := tel.sent(t, telemetry.PurposeRenew); n < 10 {
			t.Errorf("%d renewals without the agent", n)
		}
	})
}

// TestAgentAndManyCohorts: leases of so many lengths that each needs a call don't queue up for the agent, nor for one that answers late.
func TestAgentAndManyCohorts(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{0, 2200 * time.Millisecond} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
				startAgent(t, socket, srv.Client(t))
				if late > 0 {
					serve := answering(func(id int) string { time.Sleep(late); return fmt.Sprintf(`{"id":%d,"renewed":[0]}`, id) })
					socket.Serve(serve)
				}
				c := tel.open(t, srv.Client(t), lock.WithAgent(socket.Path()), lock.WithRenewalBatch(1))
				var leases []*lock.Lease
				for i := range 600 {
					leases = append(leases, try(t, c.Mutex(fmt.Sprint("job", i))))
				}
				least := time.Hour
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					for _, l := range leases {
						must(t, "the lease", l.Err())
						least = min(least, time.Until(l.Deadline()))
					}
				}
				if least < 5*time.Second { // a retry lets planned calls go first
					t.Errorf("a lease had %v left", least)
				}
				if tel.sum(t, telemetry.MetricAgentRequests) == 0 {
					t.Error("the agent wasn't asked")
				}
			})
		})
	}
}

// TestAgentKeepsAConnectionWarm: a client renews by itself every two minutes, and when it is told to look.
func TestAgentKeepsAConnectionWarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
		startAgent(t, socket, srv.Client(t))
		l := try(t, tel.open(t, srv.Client(t), lock.WithAgent(socket.Path())).Mutex("job"))
		time.Sleep(11*time.Minute + 5*time.Second)
		n := tel.sent(t, telemetry.PurposeRenew)
		if n < 5 || n > 8 {
			t.Errorf("%d renewals in 11 minutes", n)
		}
		haveLook(t, srv.Client(t), l.Owner())
		time.Sleep(time.Second)
		if now := tel.sent(t, telemetry.PurposeRenew); now != n+1 {
			t.Errorf("%d renewals after the message", now-n)
		}
		del(t, srv, "job") // which is no fault of the agent
		time.Sleep(11 * time.Second)
		mustMatch(t, l.Err(), lock.ErrLost)
		if log := tel.output(); strings.Contains(log, "agent") {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// TestAgentAndLongNames: the agent renews leases of which 256 would make a line that is too long.
func TestAgentAndLongNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
		a, stop := startAgent(t, socket, srv.Client(t))
		defer stop()
		c := tel.open(t, srv.Client(t), lock.WithAgent(socket.Path()))
		for i := range 300 {
			try(t, c.Mutex(strings.Repeat("<", 1000)+fmt.Sprint(i)))
		}
		time.Sleep(2 * time.Minute)
		ok, all := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=ok"), tel.sum(t, telemetry.MetricAgentRequests)
		if renewed := a.Status().Renewed; ok != all || renewed < 5*300 {
			t.Errorf("of %v requests %v succeeded; the agent has renewed %d leases", all, ok, renewed)
		}
	})
}

// TestAgentKnowsWhatIsHeld: the agent knows the locks of a client that it would free: soon after they are taken, also of many at once, after it was
// gone, and if it is told of nothing else.
func TestAgentKnowsWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, socket, tel := redistest.StartFake(t), redistest.NewSocket(t), newScope(t)
		c := tel.open(t, srv.Client(t), lock.WithAgent(socket.Path()), lock.WithLease(2*time.Second)) // too short for renewals by the agent
		var leases []*lock.Lease
		hold := func(n int) {
			for range n {
				leases = append(leases, try(t, c.Mutex(fmt.Sprint("job", len(leases)))))
			}
		}
		mustBe := func(a *agent.Agent, held int) {
			t.Helper()
			time.Sleep(10 * time.Millisecond)
			if s := a.Status(); s.Held != int64(held) {
				t.Errorf("the agent knows of %d locks of %d", s.Held, held)
			}
		}
		hold(1)
		time.Sleep(time.Second)
		a, stop := startAgent(t, socket, srv.Client(t))
		time.Sleep(2 * time.Minute) // the client rests
		mustBe(a, 1)
		hold(300)
		mustBe(a, 301)
		for i := range 300 { // 256 of them are too much for a line
			leases = append(leases, try(t, c.Mutex(strings.Repeat("<", 1000)+fmt.Sprint(i))))
		}
		mustBe(a, 601)
		for _, l := range leases[10:] {
			free(t, l)
		}
		mustBe(a, 10)
		stop()
		time.Sleep(time.Second)
		if s := a.Status(); s.Held != 0 {
			t.Errorf("the agent that is gone knows of %d locks", s.Held)
		}
		a, _ = startAgent(t, socket, srv.Client(t))
		time.Sleep(2 * time.Minute)
		mustBe(a, 10)
		del(t, srv, "job0")
		time.Sleep(2 * time.Second)
		mustMatch(t, leases[0].Err(), lock.ErrLost)
		mustBe(a, 9)
		if failed := tel.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=error"); failed < 2 || failed > 6 {
			t.Errorf("%v requests failed", failed)
		}
		if n := strings.Count(tel.output(), "the agent"); n == 0 || n%2 != 0 {
			t.Errorf("logged:\n%s", tel.output())
		}
		closeSoon(c)
		mustBe(a, 0)
	})
}
