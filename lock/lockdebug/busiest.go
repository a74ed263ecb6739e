package lockdebug

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockprofile"
)

const maxBusiest = 100

// busy is what happened lately to the locks with one name.
type busy struct {
	Name        string  `json:"name"`
	Kind        string  `json:"kind"`
	Group       string  `json:"group"`
	Window      seconds `json:"window_seconds"`
	Waited      seconds `json:"waited_seconds"`
	LongestWait seconds `json:"longest_wait_seconds"`
	Utilization float64 `json:"utilization"`
	Grants      float64 `json:"grants_per_second"`
	Samples     int64   `json:"samples"`
	HeldBy      *line   `json:"held_by,omitempty"`
	AwaitedBy   *line   `json:"awaited_by,omitempty"`
}

// Percent is the utilization as text.
func (b busy) Percent() string { return strconv.Itoa(int(math.Round(100*b.Utilization))) + " %" }

// Rate is the grants in a second as text.
func (b busy) Rate() string {
	if b.Grants < 9.95 {
		return strconv.FormatFloat(b.Grants, 'f', 1, 64)
	}
	return thousands(int(math.Round(b.Grants)))
}

// line is a line of code.
type line struct {
	function, file string
	number         int
}

// lineOf is the line that a stack begins with, nil if it isn't known.
func lineOf(frames []runtime.Frame) *line {
	if len(frames) == 0 {
		return nil
	}
	return &line{frames[0].Function, frames[0].File, frames[0].Line}
}

// Full is the line with all of its path.
func (l *line) Full() string { return fmt.Sprintf("%s %s:%d", l.function, l.file, l.number) }

// Short is the line with the last element of each path.
func (l *line) Short() string {
	return fmt.Sprintf("%s %s:%d", l.function[strings.LastIndexByte(l.function, '/')+1:], path.Base(l.file), l.number)
}

// MarshalText implements encoding.TextMarshaler.
func (l *line) MarshalText() ([]byte, error) { return []byte(l.Full()), nil }

// busiest returns the names that caused most waiting, and whether a client records any. The text is in lower case.
func (h *handler) busiest(r *redactor, q query, text string) (out []busy, recorded bool) {
	out = []busy{}
	for _, c := range h.clients {
		found := c.Contention()
		recorded = recorded || found.Rate > 0
		for i := range found.Names {
			n := &found.Names[i]
			b := busy{
				Name: r.names.replace(n.Name), Kind: n.Kind, Group: n.Group, Window: seconds(n.Window), Waited: seconds(n.Waited), LongestWait: seconds(n.LongestWait),
				Utilization: math.Round(1000*n.Utilization) / 1000, Grants: perSecond(n), Samples: n.Samples, HeldBy: lineOf(n.HeldBy), AwaitedBy: lineOf(n.AwaitedBy),
			}
			if b.matches(q["group"], text) {
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, func(a, b busy) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(b.Utilization, a.Utilization), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), maxBusiest)], recorded
}

// perSecond is the rate of grants. Of a client that is new it is what it had.
func perSecond(n *lock.ContentionName) float64 {
	return math.Round(1000*float64(n.Grants)/max(n.Window.Seconds(), 1)) / 1000
}

func (b *busy) matches(group, text string) bool {
	if group != "" && group != b.Group {
		return false
	}
	for _, field := range [...]string{b.Name, b.Kind, b.Group} {
		if strings.Contains(strings.ToLower(field), text) {
			return true
		}
	}
	return false
}

// wantsProfile reports whether a request with that path is for the contention profile.
func (q query) wantsProfile(at string) bool {
	return q["format"] == formatProfile || q["format"] == "" && strings.HasSuffix(at, "/profile")
}

// outlasts returns an error if the profile takes longer than the server writes a response. The server would cut the connection and not tell why.
func (q query) outlasts(r *http.Request) error {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || server.WriteTimeout <= 0 || time.Duration(q.number("seconds"))*time.Second < server.WriteTimeout {
		return nil
	}
	return fmt.Errorf("seconds is %q; allowed: less than the WriteTimeout of the server, %v", q["seconds"], server.WriteTimeout)
}

// profile responds with the contention profile.
func (h *handler) profile(w http.ResponseWriter, r *http.Request, q query) {
	var b bytes.Buffer
	status, contentType := http.StatusOK, "application/octet-stream"
	body := &b
	write := lockprofile.Write
	if n := q.number("seconds"); n > 0 && r.Method != http.MethodHead { // which doesn't get what it would wait for
		write = func(w io.Writer, clients ...*lock.Client) error {
			return lockprofile.WriteDelta(r.Context(), w, time.Duration(n)*time.Second, clients...)
		}
	}
	if err := write(&b, h.clients...); err != nil {
		var text []byte
		status, contentType, text = failed(err)
		body = bytes.NewBuffer(text)
	} else {
		w.Header().Set("Content-Disposition", `attachment; filename="locks.pb.gz"`)
	}
	respond(w, r, status, contentType, body.Bytes())
}
