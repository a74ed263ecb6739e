package lockdebug

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// traceMark is what a trace id takes the place of in Options.TraceURL.
const traceMark = "{trace_id}"

// checkTraceURL says what is wrong with a template.
func checkTraceURL(template string) error {
	if template == "" {
		return nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("the TraceURL %q is not used: %s", template, why)
	}
	if !strings.Contains(template, traceMark) {
		return refuse("there is no " + traceMark + " in it")
	}
	u, err := url.Parse(template) // refuses braces before the path
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // the template is in the text already
		}
		return refuse(err.Error())
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return refuse("it is no absolute http or https URL")
	}
	return nil
}

// traceLink is the address of a trace, "" without one.
func (h *handler) traceLink(id string) string {
	if h.traceURL == "" || id == "" {
		return ""
	}
	return strings.ReplaceAll(h.traceURL, traceMark, id)
}
