package lockdebug

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
)

// Options configures Handler.
type Options struct {
	// Clients are the clients whose locks are shown. Nil clients and duplicates are ignored.
	Clients []*lock.Client

	// TraceURL turns trace ids into links: an absolute http or https URL with {trace_id} in its path, query or fragment.
	// An invalid one is not used, and the page and the JSON report why. Empty: no links.
	TraceURL string

	// RedactName, if not nil, returns what is shown instead of a lock's name, on the page and in the JSON, also in the text of
	// errors: a hash, for example, or the part before the customer. It is called with each name of a Multi, and must return the
	// same text for the same name. Filters and sorting use the redacted text. It may be called concurrently.
	//
	// Groups are not redacted: metrics have them, too.
	RedactName func(name string) string

	// RedactOwner does the same for owners: "<client id>:<random>-<seq>" if lockdog made them. It must return different texts for
	// different owners; otherwise the page can't show who waits for whom.
	RedactOwner func(owner string) string

	// Fleet, if not nil, adds who waits for whom in all processes, and the deadlocks: see fleet.Graph. Each response then reads that from Redis, for at most 2 s; responses at the
	// same time share one reading.
	Fleet *fleet.Reader
}

// handler implements http.Handler.
type handler struct {
	clients  []*lock.Client
	traceURL string // valid, or ""
	warnings []string
	host     string
	graphs   *graphReader // nil: there is no Options.Fleet

	redactName, redactOwner func(string) string // nil: not redacted
}

// Handler returns the debug page. It can be mounted at any path, also behind http.StripPrefix, and serves GET and HEAD. It is safe
// for concurrent use, and keeps working after the clients are closed.
func Handler(o Options) http.Handler {
	h := &handler{warnings: []string{}, redactName: o.RedactName, redactOwner: o.RedactOwner}
	for _, c := range o.Clients {
		if c != nil && !slices.Contains(h.clients, c) {
			h.clients = append(h.clients, c)
		}
	}
	if why := invalidTraceURL(o.TraceURL); why != "" {
		h.warnings = append(h.warnings, fmt.Sprintf("the TraceURL %q is not used: %s", o.TraceURL, why))
	} else {
		h.traceURL = o.TraceURL
	}
	if o.Fleet != nil {
		h.graphs = &graphReader{reader: o.Fleet, timeout: graphTimeout}
	}
	h.host, _ = os.Hostname() // "" if unknown
	return h
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	status := http.StatusOK
	q, err := parseQuery(r.URL.RawQuery)
	if err == nil && q.wantsProfile(r.URL.Path) {
		err = q.outlasts(r)
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		status, err = http.StatusMethodNotAllowed, fmt.Errorf("the method is %q; GET and HEAD are allowed", r.Method)
	case err != nil:
		status = http.StatusBadRequest
	}
	if err == nil && q.wantsProfile(r.URL.Path) {
		h.profile(w, r, q)
		return
	}
	asJSON := q["format"] == formatJSON || q["format"] == "" && prefersJSON(r.Header.Values("Accept"))

	v := view{Query: q}
	if err != nil {
		v = view{Refused: err.Error(), Query: defaultQuery()}
	} else {
		now := time.Now()
		v.snapshot = h.snapshot(q, now)
		if h.graphs != nil && v.ShowsWaiting() {
			v.Graph = h.graph(r.Context(), now)
		}
	}
	body, contentType, err := v.render(asJSON)
	if err != nil { // a bug in this package
		status, contentType, body = failed(err)
	}
	respond(w, r, status, contentType, body)
}

// failed is the response that tells of a bug in this package.
func failed(err error) (status int, contentType string, body []byte) {
	return http.StatusInternalServerError, "text/plain; charset=utf-8", []byte("lockdebug: " + err.Error() + "\n")
}

func respond(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	if r.Method != http.MethodHead { // its response may lack what a GET's takes long to make, and so not know the length
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("Content-Security-Policy", contentSecurity)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer") // the query may have names in it
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

func (v *view) render(asJSON bool) (body []byte, contentType string, err error) {
	var b bytes.Buffer
	if !asJSON {
		err = pages.Execute(&b, v)
		return b.Bytes(), "text/html; charset=utf-8", err
	}
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ") // people read it, too
	if v.Refused != "" {
		err = enc.Encode(map[string]string{"error": v.Refused})
	} else {
		err = enc.Encode(v.snapshot)
	}
	return b.Bytes(), "application/json", err
}

// prefersJSON reports whether the Accept headers prefer JSON to HTML.
func prefersJSON(accept []string) bool {
	qualities := map[string]float64{} // by media range
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil || !(q >= 0 && q <= 1) {
				q = 0
			}
		}
		qualities[name] = q
	}
	quality := func(ranges ...string) float64 { // the most specific range comes first
		for _, name := range ranges {
			if q, ok := qualities[name]; ok {
				return q
			}
		}
		return 0
	}
	return quality("application/json", "application/*", "*/*") > quality("text/html", "text/*", "*/*")
}

// traceIDMark stands for the trace id in Options.TraceURL.
const traceIDMark = "{trace_id}"

// invalidTraceURL returns what is wrong with Options.TraceURL, "" if it is valid.
func invalidTraceURL(s string) string {
	if s == "" {
		return ""
	}
	if !strings.Contains(s, traceIDMark) {
		return "there is no " + traceIDMark + " in it"
	}
	u, err := url.Parse(s) // rejects braces before the path
	var parse *url.Error
	switch {
	case errors.As(err, &parse):
		return parse.Err.Error() // without the URL
	case err != nil:
		return err.Error()
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "it is no absolute http or https URL"
	}
	return ""
}

func (h *handler) traceLink(id string) string {
	if h.traceURL == "" || id == "" {
		return ""
	}
	return strings.ReplaceAll(h.traceURL, traceIDMark, id)
}
