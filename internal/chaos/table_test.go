//go:build chaos

package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// The table of docs/FAILURES.md: what a fault looks like, from what was counted.

const (
	tableBegin = "<!-- chaos -->"
	tableEnd   = "<!-- /chaos -->"
)

// TestTable writes it, when it is told where to.
func TestTable(t *testing.T) {
	if *tableFile == "" {
		return
	}
	all, err := readOutcomes(*resultsFile)
	if err != nil {
		t.Fatalf("-chaos.table needs the results of -chaos.results: %v", err)
	}
	text := render(all)
	if old, err := os.ReadFile(*tableFile); err == nil {
		before, rest, ok := strings.Cut(string(old), tableBegin)
		_, after, closed := strings.Cut(rest, tableEnd)
		if !ok || !closed {
			t.Fatalf("%s has no %s and %s", *tableFile, tableBegin, tableEnd)
		}
		text = before + tableBegin + "\n" + text + tableEnd + after
	}
	if err := os.WriteFile(*tableFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// render makes the tables of what the runs came to.
func render(all []outcome) string {
	var b strings.Builder
	grants, violated, shapesSeen := 0, 0, make(map[string]int)
	for _, o := range all {
		grants += o.Facts.Grants
		shapesSeen[o.Schedule.Shape]++
		if len(o.Violations) > 0 {
			violated++
		}
	}
	fmt.Fprintf(&b, "%s runs (", thousands(len(all)))
	for i, s := range shapes {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", s, shapesSeen[s])
	}
	fmt.Fprintf(&b, "), %s grants; %d of the runs violated a check.\n\n", thousands(grants), violated)
	b.WriteString("| fault | runs (alone) | leases lost | calls failed | last waiter in | look at |\n|---|---|---|---|---|---|\n")
	base := telling(pick(all, calm.name))
	for _, f := range faults {
		tried, alone := 0, pick(all, f.name)
		for _, o := range all {
			if slices.ContainsFunc(o.Schedule.Steps, func(s step) bool { return s.Fault == f.name }) {
				tried++
			}
		}
		if tried == 0 || len(alone) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %d (%d) | %s | %s | %s | %s |\n",
			f.name, tried, len(alone), leases(alone), calls(alone), lastIn(alone), looks(telling(alone), base))
	}
	if doubles := renderDoubles(all); doubles != "" {
		b.WriteString("\n" + doubles)
	}
	return b.String()
}

// pick are the runs with this fault and no other.
func pick(all []outcome, fault string) (some []outcome) {
	for _, o := range all {
		if name, ok := o.alone(); ok && name == fault {
			some = append(some, o)
		}
	}
	return some
}

// leases returns how many of the leases that were live during the fault were lost, why, and when. Runs with ForceUnlock, which loses some, too,
// are left out.
func leases(runs []outcome) string {
	live, lost, after := 0, 0, make(map[string][]time.Duration)
	for _, o := range runs {
		if o.Facts.Forced > 0 {
			continue
		}
		live += o.Facts.Live
		for end, when := range o.Facts.After {
			if how, why, _ := strings.Cut(end, ":"); how == history.WhyLost && why != "expired" { // a fixed lease does so by itself
				lost += len(when)
				after[why] = append(after[why], when...)
			}
		}
	}
	if live == 0 {
		return "-"
	}
	text := share(lost, live)
	for i, why := range slices.SortedFunc(maps.Keys(after), func(a, b string) int { return cmp.Or(len(after[b])-len(after[a]), cmp.Compare(a, b)) }) {
		slices.Sort(after[why])
		text += fmt.Sprintf("%s %d %s at %s", []string{":", ","}[min(i, 1)], len(after[why]), why, seconds(after[why][len(after[why])/2]))
	}
	return text
}

// calls returns how many calls failed during the fault. Results that are older than Facts.Calls have the calls that succeeded by their leases.
func calls(runs []outcome) string {
	all, failed := 0, 0
	for _, o := range runs {
		sum := o.Facts.Live
		for _, n := range o.Facts.Refused {
			sum += n
		}
		if o.Facts.Calls > 0 {
			sum = o.Facts.Calls
		}
		all += sum
		failed += o.Facts.Refused["error"]
	}
	if all == 0 {
		return "-"
	}
	return share(failed, all)
}

// lastIn returns when the last of those who waited got in after the fault: median, the worst run, and of how many runs.
func lastIn(runs []outcome) string {
	var in []time.Duration
	for _, o := range runs {
		if o.Facts.BackIn > 0 {
			in = append(in, o.Facts.BackIn)
		}
	}
	if len(in) == 0 {
		return "-"
	}
	slices.Sort(in)
	return fmt.Sprintf("%s (%s; n = %d)", seconds(in[len(in)/2]), seconds(in[len(in)-1]), len(in))
}

// sign is what tells of a fault: a count of a client, and the words for it, with the span and the alert that go with the metric.
type sign struct {
	count, words string
	forced       bool // ForceUnlock does so, too
}

func signed(metric, label, words string) sign {
	return sign{history.Labeled(metric, label), fmt.Sprintf("`%s` %s%s", strings.TrimPrefix(metric, "lockdog."), label, words), label == "missing" || label == "taken"}
}

const lockLost, renewalFailures = " (`lost`, LockLost)", " (`renew`, RenewalFailures)"

var signs = []sign{
	signed(history.CountLosses, "unreachable", lockLost), signed(history.CountLosses, "stalled", lockLost),
	signed(history.CountLosses, "missing", lockLost), signed(history.CountLosses, "taken", lockLost),
	signed("lockdog.renewals", "error", renewalFailures),
	signed(history.CountErrors, "acl", ""), signed(history.CountErrors, "oom", ""), signed(history.CountErrors, "busy", ""),
	signed(history.CountErrors, "readonly", ""), signed(history.CountErrors, "clusterdown", ""), signed(history.CountErrors, "loading", ""),
	signed(history.CountErrors, "noscript", ""), signed(history.CountErrors, "pool", ""),
	signed(history.CountErrors, "network", ""), signed(history.CountErrors, "timeout", ""),
	signed("lockdog.takeovers", "expired", " (HolderVanished)"), signed("lockdog.takeovers", "message_missed", " (WakeupsMissed)"),
	{count: "lockdog.pubsub.reconnects", words: "`pubsub.reconnects`"},
	signed(history.CountReleases, "error", " (ReleaseFailing)"),
}

// telling is in which part of the runs each sign was seen.
func telling(runs []outcome) []float64 {
	part := make([]float64, len(signs))
	for i, s := range signs {
		seen, of := 0, 0
		for _, o := range runs {
			if s.forced && o.Facts.Forced > 0 {
				continue
			}
			of++
			if o.Facts.Counts[s.count] > 0 {
				seen++
			}
		}
		if of > 0 {
			part[i] = float64(seen) / float64(of)
		}
	}
	return part
}

const mostSigns = 3

// looks are the signs that are seen far more often than without a fault, the most frequent first.
func looks(part, base []float64) string {
	var found []int
	for i := range signs {
		if part[i] >= 0.25 && part[i] >= base[i]+0.2 {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(part[b]-base[b], part[a]-base[a]) })
	var words []string
	for _, i := range found[:min(mostSigns, len(found))] {
		words = append(words, signs[i].words)
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

// renderDoubles is what becomes of a lock when a failover loses its write.
func renderDoubles(outcomes []outcome) string {
	var b strings.Builder
	all := 0
	b.WriteString("| a failover that loses writes | lock | runs | in which two held it | pairs | stale writes refused |\n|---|---|---|---|---|---|\n")
	for _, fault := range []string{"failover, primary killed", "failover, primary stopped", "failover, primary cut off", "failover, replica behind"} {
		for _, lock := range []struct{ family, words string }{{"mutex", "Mutex"}, {"replicas", "Mutex, WithReplicas(1)"}} {
			runs, both, pairs, stale := 0, 0, 0, 0
			for _, o := range pick(outcomes, fault) {
				if o.Schedule.Family != lock.family || o.Facts.Forced > 0 {
					continue
				}
				runs++
				pairs += o.Facts.Excused
				stale += o.Facts.Beside
				if o.Facts.Excused > 0 {
					both++
				}
			}
			all += pairs
			if runs > 0 {
				fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d |\n", strings.TrimPrefix(fault, "failover, "), lock.words, runs, both, pairs, stale)
			}
		}
	}
	if all == 0 { // none of the runs lost what mattered: they say nothing
		return ""
	}
	return b.String()
}

func share(n, of int) string { return thousands(n) + " of " + thousands(of) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
