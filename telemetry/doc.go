// Package telemetry holds what lockdog shows of itself: every name of a span, metric, attribute and log line
// (names.go, names_spans.go, enums.go), and the [Recorder] the core calls.
//
// It needs the OpenTelemetry API only. Whether anything is measured, and where it goes, is the program's
// choice: it installs an SDK (package otelsetup does that in one call), or does not, and then a lock costs
// nothing for telemetry beyond a few clock reads: no allocation, no span, no measurement.
//
// Programs use the names, to look things up or to check their own dashboards, and RenewalSpans. The Recorder, and the types
// that it gives and takes, are what package lock counts with; they may change with it. Each name is a constant or a variable, so that
// their list is longer than a screen.
//
// # One lock's story
//
// No span stays open while a lock is held. An acquire span covers the wait. A "held" span of no length to speak of is made
// at the grant and is the parent of all that follows: renewals, a loss, a cancellation, and, at the end, a
// "hold" span whose start is back-dated to the grant. A holder that crashes therefore leaves no orphans, and
// a lock that is still held is visible. The release is a child of whoever called Release, and links to held.
//
//	caller ── acquire ── held ─┬─ renew, renew, ...
//	                           ├─ lost / cancel
//	                           └─ hold (back-dated)
//	caller ── release ┄┄ link ┄┄> held
//	renew batch (a trace of its own) <┄┄ link ┄┄ renew
//
// A lock that has members, the names of a Multi or the nodes of a Quorum, has all of this once but the renewals, and is counted once. Each
// member has the same spans as children of the whole's, called "acquire member" and so on, and the renewals.
//
//	caller ─┬─ acquire ─┬─ held ─── hold
//	        │           └─ acquire member ── held member ── renew, renew, ..., hold member
//	        └─ release ─── release member ┄┄ link ┄┄> held member
//
// Where the acquire isn't sampled, a loss or a cancellation is the root of a trace of its own, if the sampler wants it. It starts with its
// cause or reason, the group and the kind of the lock as attributes, so that a sampler can keep the losses. A batch has a span where a
// renewal in it is shown, or failed.
//
// After 360 renewals in one trace they go on in a new one, whose root is another "held" span that links to
// the first. The sampler is asked again for it. If it declines, the renewals stay in the old trace, thinned
// out as under [RenewalSpansThinned], and the sampler is asked again 360 renewals later.
//
// # Cardinality
//
// Lock names go on spans and logs, never on metrics. Those carry a group: a name makes one while its
// recorder has fewer than 20, WithGroup while it has fewer than 50 and its MeterProvider fewer than 150. Everything
// further is counted as "_other". That bounds every instrument at 1,000 attribute sets.
//
// # What is not promised
//
// A no-op tracer is recognised by its first span and then not asked again until the global TracerProvider has
// been replaced. A provider that turns from no-op to live by other means (eBPF auto-instrumentation attached
// to a running process) is not noticed.
//
// What was counted while the MeterProvider was a no-op is lost, except for the gauges: locks held, waiters
// and registered leases are right as soon as a provider is there and the next event comes.
package telemetry
