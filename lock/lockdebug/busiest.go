package lockdebug

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/lockprofile"
)

const maxBusiest = 100

// busy is an entry of the list busiest: the recent contention for one name.
type busy struct {
	Name        string  `json:"name"`
	Kind        string  `json:"kind"`
	Group       string  `json:"group"`
	Window      float64 `json:"window_seconds"`
	Waited      float64 `json:"waited_seconds"`
	LongestWait float64 `json:"longest_wait_seconds"`
	Utilization float64 `json:"utilization"`
	Grants      float64 `json:"grants_per_second"`
	Samples     int64   `json:"samples"`
	HeldBy      string  `json:"held_by,omitempty"`
	AwaitedBy   string  `json:"awaited_by,omitempty"`
}

// lineOf returns the line of code at the top of a stack, "" if the stack isn't known.
func lineOf(frames []runtime.Frame) string {
	if len(frames) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s:%d", frames[0].Function, frames[0].File, frames[0].Line)
}

// busiest returns the names with most waiting that match the query, maxBusiest at most in all. A name that several
// clients know has an entry for each.
func (v *view) busiest() []*busy {
	out := []*busy{}
	for _, c := range v.Clients {
		found := c.Contention()
		for i := range found.Names {
			n := &found.Names[i]
			b := &busy{
				Name: v.names.replace(n.Name), Kind: n.Kind, Group: n.Group,
				Window: seconds(n.Window), Waited: seconds(n.Waited), LongestWait: seconds(n.LongestWait),
				Utilization: math.Round(1000*n.Utilization) / 1000,
				// At least 1 s: otherwise a new client's first grants would make a huge rate.
				Grants:  math.Round(1000*float64(n.Grants)/max(n.Window.Seconds(), 1)) / 1000,
				Samples: n.Samples, HeldBy: lineOf(n.HeldBy), AwaitedBy: lineOf(n.AwaitedBy),
			}
			if group := v.query["group"]; (group == "" || group == b.Group) &&
				anyContains(v.text, b.Name, b.Kind, b.Group) {
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, func(a, b *busy) int {
		return cmp.Or(
			cmp.Compare(b.Waited, a.Waited), cmp.Compare(b.Utilization, a.Utilization), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), maxBusiest)]
}

// profile writes the contention profile.
func (h *handler) profile(to io.Writer, r *http.Request, q query) error {
	if n := q.number("seconds"); n > 0 && r.Method != http.MethodHead { // a HEAD needs no body: it doesn't wait
		return lockprofile.WriteDelta(r.Context(), to, time.Duration(n)*time.Second, h.Clients...)
	}
	return lockprofile.Write(to, h.Clients...)
}
