package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Target is what a figure should be at least, or at most: a number, or a multiple of another figure in the same work.
type Target struct {
	What    string
	Work    string
	Peer    string
	Key     Key
	AtMost  bool // otherwise at least
	Limit   float64
	Base    string // the peer whose figure Limit is a multiple of; "": Limit is the number
	BaseKey Key    // that figure; "": Key
	Unit    string // of the figure
}

// Verdict is a Target, judged.
type Verdict struct {
	Target
	Known     bool // there is something to judge
	Met       bool
	Got       float64 // what is compared with Limit: the figure, or the ratio of medians
	By        float64 // how far it is beyond the limit, as a share of it; negative: missed by so much; 0 of a limit of 0
	Value     float64 // the figure
	BaseValue float64
	Low, High float64 // the least and the most of Got in the rounds
}

// Judge compares a target with what was measured.
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

// base names what Limit is a multiple of.
func (t Target) base() string {
	if t.BaseKey == "" {
		return t.Base
	}
	return t.Base + "'s " + string(t.BaseKey)
}

// String is one line.
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
	return fmt.Sprintf("%-7s %-9s %s: %s, rounds %s to %s; wanted %s", word, by, v.What, got, Number(v.Low), Number(v.High), want)
}
