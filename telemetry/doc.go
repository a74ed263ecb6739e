// Package telemetry has the names of all spans, metrics and attributes that lockdog emits, and of most log records.
// Package lock emits them through the [Recorder]. Log records that begin with "lockdog:" aren't listed here.
//
// API for users, as stable as the rest of lockdog:
//
//   - [RenewalSpans] and its values, for lock.WithRenewalSpans;
//   - the names, for dashboards and tests: [Metrics], [Spans], [Logs], their elements (Metric..., Span..., Log...), the
//     attribute keys (Key...), [ScopeName] and [Version]. A change of what is emitted is a breaking change.
//
// All else is for package lock, and may change with any release: the Recorder, its types, and the constants that are
// passed to it. But package lock exports [LossCause] and [CancelReason], with their values, as its Cause and Reason.
//
// The package only needs the OpenTelemetry API. Without an SDK, telemetry costs a lock a few clock reads: no
// allocation, no span, no measurement. A program installs an SDK itself, or by package otelsetup.
//
// # One lock's story
//
// No span stays open while a lock is held. An acquire span covers the wait. A "held" span of 1 ns is made at the grant.
// It is the parent of the spans that follow: renewals, a loss, a cancellation, and at the end a "hold" span, whose
// start is the time of the grant. So a holder that crashes leaves no span without its parent, and a lock that is still
// held is visible. The release span is a child of the caller's span (of held, if the caller has none), and links to
// held.
//
//	caller ── acquire ── held ─┬─ renew, renew, ...
//	                           ├─ lost / cancel
//	                           └─ hold (back-dated)
//	caller ── release ┄┄ link ┄┄> held
//	acquire ── deadlock (at once, if the wait is part of one)
//	renew batch (root of its own trace) <┄┄ link ┄┄ renew
//
// A lock with members (the names of a Multi, the nodes of a Quorum) is counted once and has these spans once, without
// renewals. Each member has the same spans, called "acquire member" and so on, below the acquire and the release of the
// composite lock. The members have the renewals.
//
//	caller ─┬─ acquire ─┬─ held ─── hold
//	        │           └─ acquire member ── held member ── renew, renew, ..., hold member
//	        └─ release ─── release member ┄┄ link ┄┄> held member
//
// If the acquire isn't sampled, a loss is the root of its own trace, which may be sampled. So is a cancellation, except
// a member's. The cause or reason, the group and the kind of the lock are attributes from its start, so that a sampler
// can keep the losses. A batch has a span if a renewal in it is expected to have a span ([Hold.ShowsRenewal]), or
// failed.
//
// When a lease has 360 renew spans in a trace, the next ones are in a new trace, whose root is another "held" span that
// links to the first. If the sampler declines it, the renewals stay in the old trace, thinned out as with
// [RenewalSpansThinned], and the sampler is asked again 360 successful renewals later.
//
// # Cardinality
//
// Lock names are on spans and logs, never on metrics. Metrics about locks have a group. A lock without WithGroup makes
// a new group while its recorder has fewer than 20, a lock with WithGroup while its recorder has fewer than 50; and
// both only while the MeterProvider has fewer than 150, or has that group already. A lock that may not make its group
// is counted in "_other". So no instrument has more than 1,000 attribute sets.
//
// # What is not promised
//
// A no-op tracer is recognized by its first span. It is then not asked again until the global TracerProvider has been
// replaced. A provider that changes from no-op to live in another way (eBPF auto-instrumentation that is attached to a
// running process) isn't noticed.
//
// Counts made while the MeterProvider is a no-op are lost, but not the numbers of locks held, of waiters and of the
// watchdog's leases: after a provider was installed, each is right from its next change on, at the latest.
package telemetry
