package figures_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rounds(k figures.Key, values ...float64) figures.Rounds {
	var r figures.Rounds
	for _, v := range values {
		r = append(r, figures.Figures{k: v})
	}
	return r
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	tail := []figures.Figures{{figures.P99: 300, figures.P50: 100}, {figures.P99: 500, figures.P50: 100}}
	for _, c := range []struct {
		target     figures.Target
		mine, base figures.Rounds
		text       string
	}{
		{
			figures.Target{What: "kept", Key: figures.Allocs, AtMost: true, Limit: 20},
			rounds(figures.Allocs, 20, 24, 19), nil,
			"met     just      kept: 20.0, rounds 19.0 to 24.0; wanted at most 20.0",
		},
		{
			figures.Target{What: "exceeded", Key: figures.Longest, AtMost: true, Limit: 50, Unit: "ms"},
			rounds(figures.Longest, 75), nil,
			"MISSED  by 50 %   exceeded: 75.0 ms, rounds 75.0 to 75.0; wanted at most 50.0 ms",
		},
		{
			figures.Target{What: "medians", Key: figures.Rate, Limit: 2, Base: "other", Unit: "/s"},
			rounds(figures.Rate, 300, 500, 100), rounds(figures.Rate, 100, 200, 150),
			"met     just      medians: 2.00 × other (300 / 150 /s), rounds 0.67 to 3.00; wanted at least 2.00 × other",
		},
		{
			figures.Target{What: "too little", Key: figures.Rate, Limit: 2, Base: "other", Unit: "/s"},
			rounds(figures.Rate, 150), rounds(figures.Rate, 100),
			"MISSED  by 25 %   too little: 1.50 × other (150 / 100 /s), rounds 1.50 to 1.50; wanted at least 2.00 × other",
		},
		{
			figures.Target{
				What: "own p50", Key: figures.P99, AtMost: true, Limit: 5, Unit: "µs",
				Base: "me", BaseKey: figures.P50,
			},
			tail, tail,
			"met     by 20 %   own p50: 4.00 × me's p50_us (400 / 100 µs), rounds 3.00 to 5.00; wanted at most 5.00 × me's p50_us",
		},
		{
			figures.Target{What: "worst round", Key: figures.ToldNever, AtMost: true, Limit: 0},
			rounds(figures.ToldNever, 0, 0, 1), nil,
			"MISSED            worst round: 1.00, rounds 0.00 to 1.00; wanted at most 0.00",
		},
	} {
		if got := c.target.Verdict(c.mine, c.base); got != c.text {
			t.Errorf("%s, want\n%s", got, c.text)
		}
	}
}

func TestNotMeasured(t *testing.T) {
	t.Parallel()
	target := figures.Target{What: "p50", Key: figures.P50, AtMost: true, Limit: 1.05, Base: "floor", Unit: "µs"}
	const want = "?       p50: not measured; wanted at most 1.05 × floor"
	for name, got := range map[string]string{
		"neither":    target.Verdict(nil, nil),
		"no base":    target.Verdict(rounds(figures.P50, 1), nil),
		"no own":     target.Verdict(nil, rounds(figures.P50, 1)),
		"other keys": target.Verdict(rounds(figures.Rate, 1), rounds(figures.Rate, 1)),
		"no time":    target.Verdict(rounds(figures.P50, 1), rounds(figures.P50, 0)),
	} {
		if got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0.00", 1.234: "1.23", 9.999: "10.0", 12.34: "12.3", 99.96: "100", 1234.5: "1234", -3: "-3.00"} {
		if got := figures.Number(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}

func TestRatio(t *testing.T) {
	t.Parallel()
	if r := figures.Ratio([]int64{5, 20, 10}); r != 4 {
		t.Error(r)
	}
	if r := figures.Ratio([]int64{0, 20}); r != 40 {
		t.Error(r)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	if low, high, ok := rounds(figures.Rate, 5, 3, 9).Span(figures.Rate); low != 3 || high != 9 || !ok {
		t.Errorf("%v to %v, %v", low, high, ok)
	}
	if _, _, ok := rounds(figures.Rate, 5).Span(figures.Rate); ok {
		t.Error("a span of one")
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
		known  bool
	}{
		{nil, 0, false},
		{[]float64{7}, 7, true},
		{[]float64{9, 1}, 5, true},
		{[]float64{100, 1, 3}, 3, true},
		{[]float64{4, 1, 3, 100}, 3.5, true},
	} {
		got, known := rounds(figures.Rate, c.values...).Get(figures.Rate)
		if got != c.want || known != c.known {
			t.Errorf("%v: %v %v", c.values, got, known)
		}
	}
}
