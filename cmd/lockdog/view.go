package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/lock/fleet"
)

// lockView is a lock for --json. Its fields are API.
type lockView struct {
	Name        string       `json:"name"`
	Key         string       `json:"key"`
	Kind        fleet.Kind   `json:"kind"`
	Mode        string       `json:"mode,omitempty"`
	Held        int          `json:"held"`
	Available   *int         `json:"available,omitempty"`
	RemainingMS *int64       `json:"remaining_ms,omitempty"` // omitted: the lease has no end, or nobody holds the lock
	Holders     []holderView `json:"holders,omitempty"`
	Waiting     int          `json:"waiting"`
	Waiters     []waiterView `json:"waiters,omitempty"`
}

type holderView struct {
	Owner       string    `json:"owner"`
	ClientID    string    `json:"client_id,omitempty"`
	Redisson    bool      `json:"redisson,omitempty"`
	Count       int       `json:"count,omitempty"`
	Mode        string    `json:"mode,omitempty"`
	Token       int64     `json:"token,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	TraceID     string    `json:"trace_id,omitempty"`
	TraceURL    string    `json:"trace_url,omitempty"`
	RemainingMS *int64    `json:"remaining_ms,omitempty"`
	Released    bool      `json:"released,omitempty"`
}

type waiterView struct {
	Owner    string    `json:"owner,omitempty"`
	ClientID string    `json:"client_id,omitempty"`
	Redisson bool      `json:"redisson,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	TraceID  string    `json:"trace_id,omitempty"`
	TraceURL string    `json:"trace_url,omitempty"`
}

// view converts a lock for --json.
func (t traceURL) view(l fleet.Lock) lockView {
	v := lockView{Name: l.Name, Key: l.Key, Kind: l.Kind, Mode: l.Mode, Held: l.Held, Waiting: l.Waiting}
	if l.Held > 0 {
		v.RemainingMS = millis(l.Remaining)
	}
	if l.Kind == fleet.Semaphore || l.Kind == fleet.Number {
		v.Available = &l.Available
	}
	for _, h := range l.Holders {
		v.Holders = append(v.Holders, holderView{
			Owner: h.Owner, ClientID: h.ClientID, Redisson: h.Redisson, Count: h.Count, Mode: h.Mode, Token: h.Token,
			Since: h.Since.UTC(), TraceID: h.TraceID, TraceURL: t.of(h.TraceID), RemainingMS: millis(h.Remaining),
			Released: h.Released,
		})
	}
	for _, w := range l.Waiters {
		v.Waiters = append(v.Waiters, waiterView{
			Owner: w.Owner, ClientID: w.ClientID, Redisson: w.Redisson, Since: w.Since.UTC(),
			TraceID: w.TraceID, TraceURL: t.of(w.TraceID),
		})
	}
	return v
}

func millis(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// traceURL is the URL of traces, with {trace_id} in it, or "".
type traceURL string

const (
	envTraceURL   = "LOCKDOG_TRACE_URL"
	traceURLPlace = "{trace_id}"
)

// traceFlag adds the flag for the URL of traces, and its check.
func traceFlag(cmd *cobra.Command, t *traceURL) {
	cmd.Flags().StringVar((*string)(t), "trace-url", os.Getenv(envTraceURL),
		"URL of a trace, with "+traceURLPlace+" in it; default $"+envTraceURL)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *t != "" && !strings.Contains(string(*t), traceURLPlace) {
			return usagef("--trace-url %q has no %s", string(*t), traceURLPlace)
		}
		return nil
	}
}

// of returns the address of a trace, "" if there is none.
func (t traceURL) of(id string) string {
	if t == "" || id == "" {
		return ""
	}
	return strings.ReplaceAll(string(t), traceURLPlace, id)
}
