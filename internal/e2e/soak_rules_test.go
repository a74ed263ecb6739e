//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// faster is by how much the rules of the soak test are faster than those that are shipped, so that ten minutes take one.
const faster = 10

// What is divided: windows and steps, offsets, for, keep_firing_for; the 300 by which the rules make numbers of events of rates over five
// minutes; the hour of LockdogLockHeldTooLong. What is not: numbers of events, so that floors are ten times as high here, which is why
// the fleets are busy; ratios; and what is compared with seconds of lockdog's own, the tick age and the schedule lag.
var (
	ruleRange    = regexp.MustCompile(`\[([0-9]+[smhd])(?::([0-9]+[smhd]))?\]`)
	ruleOffset   = regexp.MustCompile(`\boffset ([0-9]+[smhd])\b`)
	ruleDuration = regexp.MustCompile(`(?m)^ *(?:for|keep_firing_for): "?([0-9]+[smhd])"?$`)
	ruleEvents   = regexp.MustCompile(`\b(300) \* `)
	ruleOldest   = regexp.MustCompile(`lockdog_hold_oldest_age_seconds.* > (3600)\b`)
)

// fasterRules writes the shipped rules anew with shorter durations, and gives the files.
func fasterRules(t *testing.T) (files []string) {
	t.Helper()
	dir := t.TempDir()
	changed := map[*regexp.Regexp]int{}
	for _, shipped := range shippedRules(t) {
		text, err := os.ReadFile(shipped)
		if err != nil {
			t.Fatal(err)
		}
		rules := string(text)
		for _, what := range []*regexp.Regexp{ruleRange, ruleOffset, ruleDuration, ruleEvents, ruleOldest} {
			rules = what.ReplaceAllStringFunc(rules, func(found string) string {
				changed[what]++
				for _, old := range what.FindStringSubmatch(found)[1:] {
					if old != "" {
						found = strings.Replace(found, old, divided(t, old), 1)
					}
				}
				return found
			})
		}
		file := filepath.Join(dir, filepath.Base(shipped))
		if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, what := range []*regexp.Regexp{ruleRange, ruleOffset, ruleDuration, ruleEvents, ruleOldest} {
		if changed[what] == 0 {
			t.Fatalf("the rules have nothing like %v: are they still made faster?", what)
		}
	}
	return files
}

// divided is a duration of Prometheus, or a number, divided by faster.
func divided(t *testing.T, text string) string {
	t.Helper()
	number := strings.TrimRight(text, "smhd")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	switch unit := text[len(number):]; unit {
	case "":
		return strconv.Itoa(n / faster)
	case "d":
		text = fmt.Sprintf("%dh", 24*n)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%ds", int((d / faster).Seconds()))
}
