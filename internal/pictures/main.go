// Command pictures draws the README's picture of a trace, as an SVG, from what Jaeger's API returns. run.sh makes the run it shows.
//
//	go run ./internal/pictures http://127.0.0.1:16686 trace.svg
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]...); err != nil {
		log.Fatal("pictures: ", err)
	}
}

// run draws the best trace of a report that was written under a lock.
func run(args ...string) error {
	if len(args) != 2 {
		return errors.New("want the URL of a Jaeger that has traces of examples/orders, and a file")
	}
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Get(args[0] + "/api/traces?service=orders&operation=write+report&limit=1000&lookback=1h")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Request.URL, resp.Status)
	}
	var traces struct{ Data []*trace }
	if err := json.NewDecoder(resp.Body).Decode(&traces); err != nil {
		return err
	}
	best := choose(traces.Data)
	if best == nil {
		return errors.New("no trace has a wait, a renewal that failed, some that succeeded, and a release")
	}
	return os.WriteFile(args[1], best.svg(), 0o644)
}
