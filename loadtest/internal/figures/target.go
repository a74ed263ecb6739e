package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Target is a maximum of a figure: a number, or a multiple of another figure.
type Target struct {
	What    string
	Key     Key
	Limit   float64
	Base    string // the mode of whose figure Limit is a multiple; "": Limit is a number
	BaseKey Key    // that figure; "": Key
	Unit    string // of the figure
}

// Verdict compares a target with the measurements. The text begins with "met", "MISSED" or, if it wasn't measured, "?".
func (t Target) Verdict(rounds, base Rounds) string {
	unit, of := "", ""
	if t.Unit != "" {
		unit = " " + t.Unit
	}
	if t.Base != "" {
		of = " × " + t.Base
		if t.BaseKey != "" {
			of += "'s " + string(t.BaseKey)
		}
	}
	want := "at most " + number(t.Limit) + cmp.Or(of, unit)
	value, ok := rounds.Get(t.Key)
	// compared is the value that is compared with Limit, for all rounds together. each has the same value for each
	// round.
	compared, each, got := value, rounds.values(t.Key), number(value)+unit
	if t.Base != "" {
		key := cmp.Or(t.BaseKey, t.Key)
		baseValue, known := base.Get(key)
		ok = ok && known && baseValue > 0
		compared, each = value/baseValue, nil
		for i := range min(len(rounds), len(base)) {
			x, ok1 := rounds[i][t.Key]
			if y, ok2 := base[i][key]; ok1 && ok2 && y > 0 {
				each = append(each, x/y)
			}
		}
		got = fmt.Sprintf("%s%s (%s / %s %s)", number(compared), of, number(value), number(baseValue), t.Unit)
	}
	if !ok || len(each) == 0 {
		return fmt.Sprintf("%-7s %s: not measured; wanted %s", "?", t.What, want)
	}
	word, by := "met", "just"
	if compared > t.Limit {
		word = "MISSED"
	}
	if t.Limit == 0 {
		by = ""
	} else if percent := 100 * math.Abs(compared/t.Limit-1); percent >= 0.5 {
		by = fmt.Sprintf("by %.0f %%", percent)
	}
	return fmt.Sprintf("%-7s %-9s %s: %s, rounds %s to %s; wanted %s", word, by, t.What, got,
		number(slices.Min(each)), number(slices.Max(each)), want)
}
