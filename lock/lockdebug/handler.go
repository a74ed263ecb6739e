package lockdebug

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
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

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
)

// Options configures Handler.
type Options struct {
	// Clients are the clients whose locks are shown. Nil clients and duplicates are ignored.
	Clients []*lock.Client

	// TraceURL turns trace ids into links: an absolute http or https URL with {trace_id} in its path, query or
	// fragment. If it is invalid, there are no links, and the page and the JSON say why. Empty: no links.
	TraceURL string

	// RedactName, if not nil, returns the text to show instead of a lock's name: for "invoice:<customer>", for example,
	// "invoice:" and a hash of the customer. It applies to the page and to the JSON. It is called with each name of a
	// Multi, and must always return the same text for the same name. Filters and sorting use the redacted text. It may
	// be called concurrently. Of errors, only the kind is shown then, such as "lost: missing" or "error: network".
	//
	// Groups aren't redacted: metrics have them too.
	RedactName func(name string) string

	// RedactOwner does the same for owners; those of lockdog are "<client id>:<random>-<seq>". It must return different
	// texts for different owners, because the page shows by them who waits for whom.
	RedactOwner func(owner string) string

	// Fleet, if not nil, adds who waits for whom in all processes, and the deadlocks: see fleet.Graph. A response with
	// the JSON then reads the graph from Redis, for at most 2 s, unless the query excludes waits. Concurrent responses
	// share one reading.
	Fleet *fleet.Reader
}

// handler implements http.Handler.
type handler struct {
	Options           // only what can be used
	warnings []string // what can't
	host     string
	graphs   *graphReader // nil: no Options.Fleet
}

// Handler returns the debug page. It can be mounted at any path, and behind http.StripPrefix. It serves GET and HEAD.
// It is safe for concurrent use, and keeps working after the clients are closed.
func Handler(o Options) http.Handler {
	h := &handler{Options: o, warnings: []string{}}
	h.Clients = nil
	for _, c := range o.Clients {
		if c != nil && !slices.Contains(h.Clients, c) {
			h.Clients = append(h.Clients, c)
		}
	}
	if why := invalidTraceURL(o.TraceURL); why != "" {
		h.TraceURL = ""
		h.warnings = append(h.warnings, fmt.Sprintf("the TraceURL %q is not used: %s", o.TraceURL, why))
	}
	if o.Fleet != nil {
		h.graphs = &graphReader{reader: o.Fleet}
	}
	h.host, _ = os.Hostname() // "" if unknown
	return h
}

//go:embed page.html
var page string

// contentSecurity allows the page its own style and script, its form, and requests to its own origin. It makes browsers
// reject any conversion of text to markup or code. The page has an empty icon in a data: URL, because browsers would
// request /favicon.ico otherwise.
var contentSecurity = "default-src 'none'; style-src " + hashOf("style") + "; script-src " + hashOf("script") +
	"; connect-src 'self'; " +
	"img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// hashOf returns the hash of the page's element with this name, as a source for contentSecurity.
func hashOf(element string) string {
	_, text, _ := strings.Cut(page, "<"+element+">")
	text, _, _ = strings.Cut(text, "</"+element+">")
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.RawQuery)
	status, contentType := http.StatusOK, "application/json"
	profile := q["format"] == formatProfile || q["format"] == "" && strings.HasSuffix(r.URL.Path, "/profile")
	if err == nil && profile {
		err = q.outlasts(r)
	}
	if err != nil {
		status = http.StatusBadRequest
	}
	asPage := q["format"] == formatHTML || q["format"] == "" && !profile && prefersHTML(r.Header.Values("Accept"))
	header := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		status, err = http.StatusMethodNotAllowed, fmt.Errorf("the method is %q; GET and HEAD are allowed", r.Method)
		asPage = false
	}
	var body bytes.Buffer
	switch {
	case asPage: // even for an invalid query: the page loads the JSON, which has the error
		contentType = "text/html; charset=utf-8"
		body.WriteString(page)
	case err != nil:
		err = encode(&body, map[string]string{"error": err.Error()})
	case profile:
		contentType = "application/octet-stream"
		if err = h.profile(&body, r, q); err == nil {
			header.Set("Content-Disposition", `attachment; filename="locks.pb.gz"`)
		}
	default:
		err = encode(&body, h.snapshot(r.Context(), q))
	}
	if err != nil && !asPage { // a bug in this package, or the request ended during the profile
		status, contentType = http.StatusInternalServerError, "application/json"
		body.Reset()
		_ = encode(&body, map[string]string{"error": "lockdebug: " + err.Error()})
	}
	header.Set("Content-Type", contentType)
	if r.Method != http.MethodHead { // a HEAD doesn't wait for a profile, so it doesn't know the length of a GET's body
		header.Set("Content-Length", strconv.Itoa(body.Len()))
	}
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("Content-Security-Policy", contentSecurity)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer") // the query may contain names
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = body.WriteTo(w) // an error means that the HTTP client is gone
	}
}

// encode writes indented JSON.
func encode(to *bytes.Buffer, v any) error {
	enc := json.NewEncoder(to)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// prefersHTML reports whether the Accept headers prefer HTML to JSON, or name it with the same quality, as those of
// browsers do.
func prefersHTML(accept []string) bool {
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
	html, asJSON := quality("text/html", "text/*", "*/*"), quality("application/json", "application/*", "*/*")
	return html > asJSON || html == asJSON && qualities["text/html"] > 0
}

// traceIDMark stands for the trace id in Options.TraceURL.
const traceIDMark = "{trace_id}"

// invalidTraceURL returns what is wrong with Options.TraceURL, "" if it is valid.
func invalidTraceURL(s string) string {
	u, err := url.Parse(s) // rejects braces before the path
	switch {
	case s == "":
	case !strings.Contains(s, traceIDMark):
		return "there is no " + traceIDMark + " in it"
	case err != nil:
		return errors.Unwrap(err).Error() // without the URL
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "it is no absolute http or https URL"
	}
	return ""
}

func (h *handler) traceLink(id string) string {
	if id == "" {
		return ""
	}
	return strings.ReplaceAll(h.TraceURL, traceIDMark, id)
}
