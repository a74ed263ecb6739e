package lockdebug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/lock/locktest"
)

// rig is a page with clients over a fake server.
type rig struct {
	t    testing.TB
	srv  *locktest.Server
	page http.Handler
	held map[string]*lock.Lease
}

// newRig makes one whose clients have these defaults.
func newRig(t testing.TB, opts ...lock.Option) *rig {
	t.Helper()
	srv := locktest.New(t, append([]lock.Option{
		lock.WithClientID("worker-7"), lock.WithTracerProvider(tracenoop.NewTracerProvider()), lock.WithLogger(slog.New(slog.DiscardHandler)),
		lock.WithContentionProfile(0), // most tests count the rows of the other lists
	}, opts...)...)
	r := &rig{t: t, srv: srv, held: map[string]*lock.Lease{}}
	r.page = lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{srv.Client()}})
	t.Cleanup(r.release) // before the server closes
	return r
}

func (r *rig) release() {
	for _, l := range r.held {
		_ = l.Release(context.Background()) // some are lost
	}
}

// hold takes locks.
func (r *rig) hold(names []string, opts ...lock.LockOption) {
	r.t.Helper()
	for _, name := range names {
		l, err := r.srv.Client().Mutex(name, opts...).TryLock(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		r.held[name] = l
	}
}

// wait has a Lock wait for name, until the test ends.
func (r *rig) wait(name string) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := r.srv.Client().Mutex(name).Lock(ctx)
		done <- err
	}()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, lock.ErrHeld) {
			r.t.Errorf("the waiter of %q: %v", name, err)
		}
	})
}

// names are n of them: prefix:0000 and on.
func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s:%04d", prefix, i)
	}
	return out
}

// ask sends a request to a page, whose headers are given in pairs.
func ask(page http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, req)
	return w
}

// document is the JSON, as the package documentation has it.
type document struct {
	Time     time.Time
	Host     string
	PID      int
	Clients  int
	Warnings []string
	Summary  struct {
		Held, Waiting, Failing, Expiring, Degraded, Canceled int
		LostLastHour                                         int       `json:"lost_last_hour"`
		CanceledLastHour                                     int       `json:"canceled_last_hour"`
		OldestHold                                           float64   `json:"oldest_hold_seconds"`
		OldestHoldName                                       string    `json:"oldest_hold_name"`
		EndedSince                                           time.Time `json:"ended_since"`
	}
	Groups               []string
	Page                 int
	PerPage              int `json:"per_page"`
	Held, Waiting, Ended rows
	Graph                *graph // only with Options.Fleet
	Busiest              []busy
}

type graph struct {
	Time              time.Time
	Error             string
	Total, Unreadable int
	More              bool
	Cycles            [][]cycleWait
	Waits             []graphWait
}

type cycleWait struct {
	Name, Owner string
	ClientID    string `json:"client_id"`
	Since       time.Time
	Age         float64 `json:"age_seconds"`
	TraceID     string  `json:"trace_id"`
	TraceURL    string  `json:"trace_url"`
	HoldsName   string  `json:"holds_name"`
	HoldsOwner  string  `json:"holds_owner"`
}

type graphWait struct {
	Name, Kind, Owner string
	ClientID          string `json:"client_id"`
	Since             time.Time
	Age               float64 `json:"age_seconds"`
	TraceID           string  `json:"trace_id"`
	TraceURL          string  `json:"trace_url"`
	Deadlock          bool
	Held              int
	HeldBy            []struct {
		Owner    string
		ClientID string `json:"client_id"`
		Redisson bool
		Since    time.Time
		Age      float64 `json:"age_seconds"`
		TraceID  string  `json:"trace_id"`
		TraceURL string  `json:"trace_url"`
	} `json:"held_by"`
	Holds []struct {
		Name, Owner string
		Token       int64
	}
}

type busy struct {
	Name, Kind, Group string
	Window            float64 `json:"window_seconds"`
	Waited            float64 `json:"waited_seconds"`
	LongestWait       float64 `json:"longest_wait_seconds"`
	Utilization       float64
	Grants            float64 `json:"grants_per_second"`
	Samples           int
	HeldBy            string `json:"held_by"`
	AwaitedBy         string `json:"awaited_by"`
}

type rows struct {
	Total, Pages int
	Items        []row
}

type row struct {
	Name, Kind, Group, State, Node, Owner string
	Token                                 int64
	Since                                 time.Time
	Age                                   float64 `json:"age_seconds"`
	TraceID                               string  `json:"trace_id"`
	TraceURL                              string  `json:"trace_url"`
	Failing, Expiring, Degraded           bool
	Lease                                 float64 `json:"lease_seconds"`
	Remaining                             float64 `json:"remaining_seconds"`
	Deadline                              time.Time
	NextRenewal                           *time.Time `json:"next_renewal"`
	LastError                             string     `json:"last_error"`
	LastErrorAt                           time.Time  `json:"last_error_at"`
	FailingSince                          time.Time  `json:"failing_since"`
	FailingFor                            float64    `json:"failing_seconds"`
	Reason                                string
	Waiters                               int
	WaitsFor                              string `json:"waits_for"`
	Ended                                 time.Time
	Why, Error                            string
	Have, Need                            int
	Members                               []row
}

// states are those of its members.
func (r row) states() string {
	var out []string
	for _, m := range r.Members {
		out = append(out, m.State)
	}
	return strings.Join(out, " ")
}

// names of the rows, in their order.
func (r rows) names() string {
	var out []string
	for _, one := range r.Items {
		out = append(out, one.Name)
	}
	return strings.Join(out, " ")
}

// json is the JSON for a query; no field may be in it that document hasn't.
func (r *rig) json(query string) document {
	r.t.Helper()
	w := ask(r.page, http.MethodGet, "/debug/locks"+query, "Accept", "application/json")
	var d document
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil || w.Code != http.StatusOK {
		r.t.Fatalf("GET %s: %d, %v", query, w.Code, err)
	}
	return d
}
