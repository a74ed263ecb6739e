package sample

import (
	"math"
	"slices"
	"time"
)

// Between returns the points between two times.
func Between(points []Point, from, to time.Time) []Point {
	return slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.At.Before(from) || p.At.After(to) })
}

// Peak returns the maximum number of calls in a Window. Samples aren't exactly a Window apart. So Peak counts from each
// sample to the first one that comes at least Window-Every/2 later. If that comes more than Window+Every/2 later, Peak
// scales the count down to a Window and rounds up.
func Peak(points []Point) int64 {
	var peak int64
	if n := len(points); n > 0 && points[n-1].At.Sub(points[0].At) < Window {
		return points[n-1].Calls - points[0].Calls // all points are in one Window
	}
	for i, j := 0, 0; j < len(points); i++ {
		// A distance of up to Every/2 less than a Window is close enough.
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

// Series returns the calls in each Window from start to end, 0 after the last point. It assumes that calls are evenly
// spread between samples.
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

// at returns the number of calls until a time.
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
		// If there was only one call between the two samples, it can't be split between two windows. It counts in the
		// window that has more of the time between the samples.
		if b.Calls-a.Calls == 1 {
			share = math.Round(share)
		}
		return float64(a.Calls) + share*float64(b.Calls-a.Calls)
	}
	return float64(points[len(points)-1].Calls)
}
