package sample

import (
	"math"
	"slices"
	"time"
)

// Between returns the points from one time to another.
func Between(points []Point, from, to time.Time) []Point {
	return slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.At.Before(from) || p.At.After(to) })
}

// Peak is the largest number of calls in any Window. Samples aren't taken exactly a Window apart. So Peak counts between the samples whose
// distance is closest to a Window, and scales down what spans more, rounded up.
func Peak(points []Point) int64 {
	var peak int64
	if n := len(points); n > 0 && points[n-1].At.Sub(points[0].At) < Window {
		return points[n-1].Calls - points[0].Calls // all there is
	}
	for i, j := 0, 0; j < len(points); i++ {
		// Half a sample short of a window is as close as it gets.
		for j < len(points) && points[j].At.Sub(points[i].At) < Window-Every/2 {
			j++
		}
		if j == len(points) {
			break
		}
		calls, length := points[j].Calls-points[i].Calls, points[j].At.Sub(points[i].At)
		if length > Window+Every/2 {
			calls = int64(math.Ceil(float64(calls) * float64(Window) / float64(length)))
		}
		peak = max(peak, calls)
	}
	return peak
}

// Series counts the calls of each Window from start to the last point, or to end. Between samples calls count as evenly spread.
func Series(points []Point, start, end time.Time) []float64 {
	var series []float64
	if len(points) < 2 {
		return series
	}
	before := at(points, start)
	for t := start.Add(Window); !t.After(end); t = t.Add(Window) {
		now := at(points, t)
		series = append(series, now-before)
		before = now
	}
	return series
}

// at is how many calls there were by a time.
func at(points []Point, t time.Time) float64 {
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if t.After(b.At) {
			continue
		}
		if !t.After(a.At) {
			return float64(a.Calls)
		}
		share := float64(t.Sub(a.At)) / float64(b.At.Sub(a.At))
		// A call is one call, not half of it here and half there: it goes to the nearer side.
		if b.Calls-a.Calls == 1 {
			share = math.Round(share)
		}
		return float64(a.Calls) + share*float64(b.Calls-a.Calls)
	}
	return float64(points[len(points)-1].Calls)
}
