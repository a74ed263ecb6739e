package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// FuzzInputs gives any text to all that the load test reads - the command line, INFO of a Redis, what children say - and to all
// that its page shows.
func FuzzInputs(f *testing.F) {
	f.Add("-locks\n1000,2000\n-lease\n3s")
	f.Add("-soak\n1m\n-redis\nredis://:secret@localhost:6379/1")
	f.Add("# Server\r\nredis_version:7.0.15\r\nserver_time_usec:1700000000000000\r\ncmdstat_evalsha:calls=3,usec=40,usec_per_call=1\r\n")
	f.Add(`{"did":"read","reading":{"cpu":1e308,"counts":{"lockdog.renewals":{"renewed":9223372036854775807}},"times":{"lockdog.watchdog.batch.duration":null}}}`)
	f.Add(`{"did":"read","reading":{"times":{"lockdog.watchdog.batch.duration":{"bins":"HISTFAAAABh42pNpmSzMgAlYoPQHewgLAB0KAmI=","max_ns":-1}}}}`)
	f.Add("</script><script>alert(1)</script><!--")
	f.Add("\"'`\x00\xff\u2028<style>")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parse(strings.Split(text, "\n")); err == nil && (len(got.locks) == 0 || len(got.modes) == 0 || got.clients < 1 || got.rounds < 1 || got.duration <= 0) {
			t.Errorf("%q: accepted as %+v", text, got)
		}
		if info, err := sample.Parse(text); err == nil {
			sample.Sort(info.Since(sample.Info{}).Commands, 0)
		}
		var reply wire.Reply
		if err := json.Unmarshal([]byte(text), &reply); err == nil && reply.Reading != nil {
			var sum wire.Reading
			sum.Add(reply.Reading)
			sum.Time(wire.Batch).Quantile(0.99)
		}

		rep := &report.Report{
			Kind: "compare", Command: text, Started: text, Notes: []string{text}, Machine: report.Machine{OS: text, CPU: text, Go: text, Redis: text, Load: text},
			Settings: report.Settings{Context: text}, Rows: []report.Row{{Mode: text, Stage: text, Locks: 1, LossCauses: map[string]int64{text: 1}, Events: []report.Event{{What: text}}}},
			Targets: []report.Target{{What: text, Want: text, Got: text}},
		}
		var page bytes.Buffer
		if err := rep.HTML(&page); err != nil {
			t.Fatal(err)
		}
		for mark, want := range marks(t) {
			if got := strings.Count(page.String(), mark); got != want {
				t.Errorf("%q: the page has %d of %s, want %d", text, got, mark, want)
			}
		}
	})
}

// marks are those of a page whose texts are harmless.
var harmless map[string]int

func marks(t *testing.T) map[string]int {
	if harmless == nil {
		rep := &report.Report{
			Kind: "compare", Command: "x", Notes: []string{"x"}, Rows: []report.Row{{Mode: "x", Stage: "x", Locks: 1, LossCauses: map[string]int64{"x": 1}, Events: []report.Event{{What: "x"}}}},
			Targets: []report.Target{{What: "x", Want: "x", Got: "x"}},
		}
		var page bytes.Buffer
		if err := rep.HTML(&page); err != nil {
			t.Fatal(err)
		}
		harmless = map[string]int{}
		for _, mark := range []string{"<", ">", "</script", "<!--"} {
			harmless[mark] = strings.Count(page.String(), mark)
		}
	}
	return harmless
}
