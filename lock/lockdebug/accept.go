package lockdebug

import (
	"mime"
	"strconv"
	"strings"
)

// The formats of ?format=.
const (
	formatHTML = "html"
	formatJSON = "json"
)

// prefersJSON says whether the Accept headers want JSON rather than HTML. Without a preference it is HTML.
func prefersJSON(accept []string) bool {
	ranges := strings.Split(strings.Join(accept, ","), ",")
	return quality(ranges, "application/json") > quality(ranges, "text/html")
}

// quality is the q-value of a media type: that of the range which names it best, 0 if none does.
func quality(ranges []string, mediaType string) float64 {
	family, _, _ := strings.Cut(mediaType, "/")
	best, q := 0, 0.0
	for _, r := range ranges {
		name, params, err := mime.ParseMediaType(r)
		if err != nil {
			continue // what can't be read asks for nothing
		}
		fits := 0
		switch name {
		case mediaType:
			fits = 3
		case family + "/*":
			fits = 2
		case "*/*":
			fits = 1
		}
		if fits <= best {
			continue
		}
		best, q = fits, 1
		if text, ok := params["q"]; ok {
			q, err = strconv.ParseFloat(text, 64)
			if err != nil || !(q >= 0 && q <= 1) {
				q = 0
			}
		}
	}
	return q
}
