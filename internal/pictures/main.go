// Command pictures makes the README's pictures small enough to be kept in the repository. run.sh has the run they show.
//
//	go run ./internal/pictures -jaeger http://127.0.0.1:16686 -out trace.svg    # the story of one lock, from a real Jaeger
//	go run ./internal/pictures -png screenshot.png -out small.png               # with 256 colours
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	jaeger := flag.String("jaeger", "", "the URL of a Jaeger that saw examples/orders: draws a trace")
	png := flag.String("png", "", "a screenshot: makes it smaller")
	out := flag.String("out", "", "where the picture goes")
	flag.Parse()
	if err := run(*jaeger, *png, *out); err != nil {
		log.Fatal("pictures: ", err)
	}
}

func run(jaeger, png, out string) (err error) {
	var picture []byte
	switch {
	case out == "" || (jaeger == "") == (png == ""):
		return errors.New("want -out, and either -jaeger or -png")
	case png != "":
		picture, err = shrink(png)
	default:
		picture, err = drawFrom(jaeger)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(out, picture, 0o644)
}

// drawFrom draws the best story that Jaeger has of a report that was written under a lock.
func drawFrom(url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/traces?service=orders&operation=write+report&limit=1000&lookback=1h", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", req.URL, answer.Status)
	}
	traces, err := read(answer.Body)
	if err != nil {
		return nil, err
	}
	best := choose(traces)
	if best == nil {
		return nil, errors.New("no trace has a wait, a renewal that failed, some that succeeded, and a release")
	}
	return best.svg(), nil
}
