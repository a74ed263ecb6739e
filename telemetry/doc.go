// Package telemetry holds every name of a span, metric, attribute and log record that lockdog emits, and the [Recorder] with
// which package lock emits them.
//
// API for users, and stable as the rest of lockdog is:
//
//   - [RenewalSpans] and its values, for lock.WithRenewalSpans;
//   - the names, for dashboards and tests: [Metrics], [Spans], [Logs], their elements (Metric..., Span..., Log...), the attribute
//     keys (Key...), [ScopeName] and [Version]. To change what is emitted is a breaking change.
//
// Everything else is there for package lock, and may change with any release: the Recorder, the types it gives and takes, and the
// constants that are passed to it.
//
// The package needs the OpenTelemetry API only. Without an SDK a lock costs nothing for telemetry beyond a few clock reads: no
// allocation, no span, no measurement. Programs install an SDK themselves, or by package otelsetup.
//
// # One lock's story
//
// No span stays open while a lock is held. An acquire span covers the wait. A "held" span of 1 ns is made at the grant. It is
// the parent of all that follows: renewals, a loss, a cancellation, and, at the end, a "hold" span that is back-dated to
// the grant. So a holder that crashes leaves no orphans, and a lock that is still held is visible. The release span is a child
// of the caller's, and links to held.
//
//	caller ── acquire ── held ─┬─ renew, renew, ...
//	                           ├─ lost / cancel
//	                           └─ hold (back-dated)
//	caller ── release ┄┄ link ┄┄> held
//	acquire ── deadlock (at once, where the wait is part of one)
//	renew batch (a trace of its own) <┄┄ link ┄┄ renew
//
// A lock with members (the names of a Multi, the nodes of a Quorum) is counted once and has these spans once, without renewals. Each
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
// What was counted while the MeterProvider was a no-op is lost. The numbers of locks held, waiters and registered leases aren't:
// they are right at the first event after a provider was installed.
package telemetry
