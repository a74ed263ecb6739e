package telemetry

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// registry has the instruments of one MeterProvider, and computes the observable gauges over all its recorders. With a
// callback per recorder, two clients with a group of the same name would hide each other: the SDK keeps the last value
// of an attribute set.
type registry struct {
	*instruments
	provider metric.MeterProvider
	callback metric.Registration

	// members is read by the collecting goroutine, which holds the SDK's lock. That goroutine must not lock
	// registries.mu, which is held while a callback is registered with the SDK: that would be a deadlock.
	members atomic.Pointer[[]*Recorder]

	mu     sync.Mutex
	groups map[string]struct{}
}

// registries are the registries that have recorders. A registry is removed with its last recorder.
var registries struct {
	mu  sync.Mutex
	all []*registry
}

// join adds r to the registry of provider. For the first recorder it makes the registry.
func join(r *Recorder, provider metric.MeterProvider) (*registry, error) {
	registries.mu.Lock()
	defer registries.mu.Unlock()
	for _, reg := range registries.all {
		if sameMeters(reg.provider, provider) {
			reg.setMembers(append(slices.Clone(*reg.members.Load()), r))
			return reg, nil
		}
	}
	meter := meterOf(provider)
	i, err := newInstruments(meter)
	if err != nil {
		return nil, err
	}
	reg := &registry{instruments: i, provider: provider, groups: map[string]struct{}{}}
	reg.setMembers([]*Recorder{r})
	var observed []metric.Observable
	for _, g := range i.gauges {
		observed = append(observed, g)
	}
	if reg.callback, err = meter.RegisterCallback(reg.collect, observed...); err != nil {
		reg.unregister()
		return nil, err
	}
	registries.all = append(registries.all, reg)
	return reg, nil
}

// leave removes r from its registry.
func leave(r *Recorder, reg *registry) {
	registries.mu.Lock()
	defer registries.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(*reg.members.Load()), func(m *Recorder) bool { return m == r })
	reg.setMembers(rest)
	if len(rest) > 0 {
		return
	}
	reg.unregister()
	registries.all = slices.DeleteFunc(registries.all, func(o *registry) bool { return o == reg })
}

func (reg *registry) setMembers(m []*Recorder) { reg.members.Store(&m) }

func (reg *registry) unregister() {
	if reg.callback != nil {
		// The only possible error: the callback isn't registered any more.
		_ = reg.callback.Unregister()
	}
}

// sameMeters reports whether the measurements of two providers go to the same place. The providers needn't be equal:
// OpenTelemetry's default global provider forwards to the first one that replaces it, and then returns its meters.
func sameMeters(a, b metric.MeterProvider) bool {
	return equal(a, b) || equal(meterOf(a), meterOf(b))
}

// equal reports whether a == b. It is false if the comparison would panic, because the type can't be compared.
func equal(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// maxSharedGroups limits the groups of all recorders of a provider, so that several clients together have fewer than
// 1,000 attribute sets per instrument (lockdog.acquisitions has six per group).
const maxSharedGroups = 150

// admit adds a group of that name to the registry, if it isn't known. It reports false if there is no room for it.
func (reg *registry) admit(name string) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if _, known := reg.groups[name]; !known {
		if len(reg.groups) >= maxSharedGroups {
			return false
		}
		reg.groups[name] = struct{}{}
	}
	return true
}

// collect is the callback. It observes the worst value of all recorders, because that one needs attention, but the sum
// of their failing leases.
func (reg *registry) collect(_ context.Context, o metric.Observer) error {
	type total struct {
		options []metric.ObserveOption
		oldest  time.Duration
		failing int
		worst   float64
	}
	groups := map[string]total{}
	var tickAge time.Duration
	var ticking, wanted bool
	connected := 1.0
	now := time.Now()
	for _, r := range *reg.members.Load() {
		for name, g := range *r.groups.Load() {
			if !g.counting.Load() {
				continue
			}
			t := groups[name]
			oldest, failing, worst := g.gauges(now)
			groups[name] = total{g.attrs.observe, max(t.oldest, oldest), t.failing + failing, max(t.worst, worst)}
		}
		if r.state == nil {
			continue
		}
		s := r.state()
		if s.Ticking {
			ticking, tickAge = true, max(tickAge, s.TickAge)
		}
		if s.PubSubWanted {
			wanted = true
			if !s.PubSubConnected {
				connected = 0
			}
		}
	}
	for _, t := range groups {
		o.ObserveFloat64(reg.gauges[MetricOldestAge.Name], t.oldest.Seconds(), t.options...)
		o.ObserveFloat64(reg.gauges[MetricFailing.Name], float64(t.failing), t.options...)
		o.ObserveFloat64(reg.gauges[MetricWorstUtilization.Name], t.worst, t.options...)
	}
	if ticking {
		o.ObserveFloat64(reg.gauges[MetricTickAge.Name], tickAge.Seconds())
	}
	if wanted {
		o.ObserveFloat64(reg.gauges[MetricPubSubConnected.Name], connected)
	}
	return nil
}
