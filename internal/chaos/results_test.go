//go:build chaos

package chaos_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

var (
	resultsFile = flag.String("chaos.results", "", "append what each run came to, as a line of JSON, to this `file`")
	tableFile   = flag.String("chaos.table", "", "write the table of docs/FAILURES.md, made from -chaos.results, to this `file`, or between its markers")
)

// outcome is what is kept of a run for the table.
type outcome struct {
	Schedule   schedule
	Violations []string `json:",omitempty"`
	Facts      history.Facts
}

// alone is the name of the run's fault, if it had one only.
func (o outcome) alone() (string, bool) {
	return o.Schedule.Steps[0].Fault, len(o.Schedule.Steps) == 1
}

var appending sync.Mutex

// appendOutcome adds a run's result to the file.
func appendOutcome(t *testing.T, r result) {
	t.Helper()
	if *resultsFile == "" {
		return
	}
	o := outcome{Schedule: r.schedule, Facts: r.history.Facts()}
	o.Facts.Excused, o.Facts.Beside, o.Facts.Stale = r.excused, r.beside, r.stale
	for _, v := range r.violations {
		o.Violations = append(o.Violations, v.String())
	}
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	appending.Lock()
	defer appending.Unlock()
	f, err := os.OpenFile(*resultsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readOutcomes reads such a file.
func readOutcomes(path string) (all []outcome, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(all)+1, err)
		}
		all = append(all, o)
	}
	return all, lines.Err()
}
