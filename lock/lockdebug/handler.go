package lockdebug

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// Options says what Handler shows.
type Options struct {
	// Clients are those whose locks are shown. Nil ones are ignored, and so is a client that is named twice.
	Clients []*lock.Client

	// TraceURL makes links of the trace ids: an absolute http or https URL with {trace_id} in its path, query or fragment.
	// Another one is not used, and the page and the JSON say why. Empty: no links.
	TraceURL string

	// RedactName, if it isn't nil, says what is shown of a lock's name, on the page and in the JSON, also where it stands in the text of an
	// error: a hash, say, or what is before the customer. It is called with each name of a Multi, and is to say the same whenever it is asked for
	// the same. Filters and orders see what it says. It may be called by several requests at a time.
	//
	// Groups are shown as they are: metrics have them, too.
	RedactName func(name string) string

	// RedactOwner is the same for owners: "<client id>:<random>-<seq>" where lockdog made them. It has to tell them apart, or the page
	// can't say who waits for whom.
	RedactOwner func(owner string) string
}

// handler implements http.Handler.
type handler struct {
	clients  []*lock.Client
	traceURL string // checked
	warnings []string
	host     string

	redactName, redactOwner func(string) string // nil: shown as they are
}

// Handler returns the debug page. It can be mounted at any path, also under a prefix that is stripped, and serves GET and
// HEAD. It is safe for concurrent use, and goes on to work after the clients were closed.
func Handler(o Options) http.Handler {
	h := &handler{warnings: []string{}, redactName: o.RedactName, redactOwner: o.RedactOwner}
	for _, c := range o.Clients {
		if c != nil && !slices.Contains(h.clients, c) {
			h.clients = append(h.clients, c)
		}
	}
	if err := checkTraceURL(o.TraceURL); err != nil {
		h.warnings = append(h.warnings, err.Error())
	} else {
		h.traceURL = o.TraceURL
	}
	h.host, _ = os.Hostname() // "" where it isn't known
	return h
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{w: w, r: r, json: prefersJSON(r.Header.Values("Accept"))}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		a.refuse(http.StatusMethodNotAllowed, fmt.Errorf("the method is %q; GET and HEAD are allowed", r.Method))
		return
	}
	q, err := parseQuery(r.URL.RawQuery)
	if q.Format != "" {
		a.json = q.Format == formatJSON
	}
	if err != nil {
		a.refuse(http.StatusBadRequest, err)
		return
	}
	s := h.look(q, time.Now())
	if a.json {
		a.sendJSON(http.StatusOK, s)
		return
	}
	a.sendPage(http.StatusOK, &view{snapshot: s, Query: q})
}

// answer is the way back to who asked.
type answer struct {
	w    http.ResponseWriter
	r    *http.Request
	json bool
}

// refuse says what is wrong, in the format asked for.
func (a *answer) refuse(status int, err error) {
	if a.json {
		a.sendJSON(status, map[string]string{"error": err.Error()})
		return
	}
	a.sendPage(status, &view{Refused: err.Error(), Query: query{}.defaults()})
}

func (a *answer) sendJSON(status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetIndent("", "  ") // as often read by people as by programs
	if err := enc.Encode(v); err != nil {
		a.fail(err)
		return
	}
	a.send(status, "application/json", body.Bytes())
}

func (a *answer) sendPage(status int, v *view) {
	var body bytes.Buffer
	if err := pages.Execute(&body, v); err != nil {
		a.fail(err)
		return
	}
	a.send(status, "text/html; charset=utf-8", body.Bytes())
}

// fail is for bugs of this package.
func (a *answer) fail(err error) {
	a.send(http.StatusInternalServerError, "text/plain; charset=utf-8", []byte("lockdebug: "+err.Error()+"\n"))
}

func (a *answer) send(status int, contentType string, body []byte) {
	header := a.w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("Content-Security-Policy", contentSecurity)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer") // names travel in the query
	a.w.WriteHeader(status)
	if a.r.Method != http.MethodHead {
		_, _ = a.w.Write(body) // who asked may be gone
	}
}
