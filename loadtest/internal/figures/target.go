package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Target is a limit for a figure, a minimum or a maximum: a number, or a multiple of another figure in the same work.
type Target struct {
	What    string
	Work    string
	Peer    string
	Key     Key
	AtMost  bool // a maximum; otherwise a minimum
	Limit   float64
	Base    string // the peer of whose figure Limit is a multiple; "": Limit is a number
	BaseKey Key    // that figure; "": Key
	Unit    string // of the figure
}

// Verdict is the result for a Target.
type Verdict struct {
	Target
	Known bool // it was measured
	Met   bool
	Got   float64 // what is compared with Limit: the figure, or the ratio of medians
	// By is how far Got is better than Limit, relative to Limit. Negative: missed. 0 if Limit is 0.
	By        float64
	Value     float64 // the figure
	BaseValue float64
	Low, High float64 // minimum and maximum of Got in the rounds
}

// Judge compares a target with the measurements.
func (t Target) Judge(rounds, base Rounds) Verdict {
	v := Verdict{Target: t}
	var ok bool
	if v.Value, ok = rounds.Get(t.Key); !ok {
		return v
	}
	v.Got = v.Value
	singles := rounds.values(t.Key)
	if t.Base != "" {
		key := t.baseKey()
		if v.BaseValue, ok = base.Get(key); !ok || v.BaseValue <= 0 {
			return v
		}
		v.Got /= v.BaseValue
		singles = nil
		for i := range min(len(rounds), len(base)) {
			x, ok1 := rounds[i][t.Key]
			y, ok2 := base[i][key]
			if ok1 && ok2 && y > 0 {
				singles = append(singles, x/y)
			}
		}
	}
	v.Known = true
	if len(singles) > 0 {
		v.Low, v.High = slices.Min(singles), slices.Max(singles)
	}
	if v.Met = v.Got >= t.Limit; t.AtMost {
		v.Met = v.Got <= t.Limit
	}
	if t.Limit > 0 {
		if v.By = v.Got/t.Limit - 1; t.AtMost {
			v.By = -v.By
		}
	}
	return v
}

func (t Target) baseKey() Key { return cmp.Or(t.BaseKey, t.Key) }

// base returns the name of the figure of which Limit is a multiple.
func (t Target) base() string {
	if t.BaseKey == "" {
		return t.Base
	}
	return t.Base + "'s " + string(t.BaseKey)
}

// String returns the verdict on one line.
func (v Verdict) String() string {
	want := "at least"
	if v.AtMost {
		want = "at most"
	}
	want += " " + Number(v.Limit)
	if v.Base != "" {
		want += " × " + v.base()
	} else if v.Unit != "" {
		want += " " + v.Unit
	}
	if !v.Known {
		return fmt.Sprintf("%-7s %s: not measured; wanted %s", "?", v.What, want)
	}
	word, by := "met", fmt.Sprintf("by %.0f %%", 100*math.Abs(v.By))
	if !v.Met {
		word = "MISSED"
	}
	switch {
	case v.Limit == 0:
		by = ""
	case math.Abs(v.By) < 0.005:
		by = "just"
	}
	got := Number(v.Got)
	if v.Base != "" {
		got = fmt.Sprintf("%s × %s (%s / %s %s)", got, v.base(), Number(v.Value), Number(v.BaseValue), v.Unit)
	} else if v.Unit != "" {
		got += " " + v.Unit
	}
	return fmt.Sprintf("%-7s %-9s %s: %s, rounds %s to %s; wanted %s", word, by, v.What, got, Number(v.Low),
		Number(v.High), want)
}
