package telemetry

import (
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The attribute keys of spans, their events and links, and metrics. Durations are in seconds.
const (
	KeyGroup        attribute.Key = "lockdog.group"
	KeyOutcome      attribute.Key = "lockdog.outcome"
	KeyWakeupSource attribute.Key = "lockdog.wakeup.source"
	KeyReason       attribute.Key = "lockdog.reason"
	KeyEnd          attribute.Key = "lockdog.end"
	KeyCause        attribute.Key = "lockdog.cause"
	KeyOperation    attribute.Key = "lockdog.operation"
	KeyPurpose      attribute.Key = "lockdog.purpose"
	KeyErrorType                  = semconv.ErrorTypeKey

	KeyName        attribute.Key = "lockdog.name"
	KeyKind        attribute.Key = "lockdog.kind"
	KeyOwner       attribute.Key = "lockdog.owner"
	KeyToken       attribute.Key = "lockdog.token"
	KeyLease       attribute.Key = "lockdog.lease.duration"
	KeyRemaining   attribute.Key = "lockdog.lease.remaining"
	KeyUtilization attribute.Key = "lockdog.lease.utilization"
	KeyAttempts    attribute.Key = "lockdog.attempts"
	KeyWakeups     attribute.Key = "lockdog.wakeups"
	KeyTakeover    attribute.Key = "lockdog.takeover"
	KeyBlockedBy   attribute.Key = "lockdog.blocked_by"
	KeyOrdinal     attribute.Key = "lockdog.renewal.ordinal"
	KeyAttempt     attribute.Key = "lockdog.renewal.attempt"
	KeyLag         attribute.Key = "lockdog.renewal.lag"
	KeyNode        attribute.Key = "lockdog.node"
	KeyBatchSize   attribute.Key = "lockdog.batch.size"
	KeyRenewed     attribute.Key = "lockdog.batch.renewed"
	KeyMissing     attribute.Key = "lockdog.batch.missing"
	KeyTaken       attribute.Key = "lockdog.batch.taken"
	KeyFailed      attribute.Key = "lockdog.batch.failed"
	KeyByAgent     attribute.Key = "lockdog.batch.by_agent"
	KeyUnconfirmed attribute.Key = "lockdog.release.unconfirmed"
	KeyForcedBy    attribute.Key = "lockdog.forced_by"
	KeyLink        attribute.Key = "lockdog.link"

	KeyDeadlockCycle  attribute.Key = "lockdog.deadlock.cycle"
	KeyDeadlockBroken attribute.Key = "lockdog.deadlock.broken"
)

// The values of KeyLink: the target of a link.
const (
	linkBlockedBy = "blocked_by" // the acquire span of the lock's holder
	linkHeld      = "held"       // the grant that a span belongs to: its held span, or else its acquire span
	linkBatch     = "batch"      // the renewal call, also if it failed
)

// memberOf follows Span.Name in the names of a member's spans, except renew. A member is a name of a Multi, or a node
// of a Quorum.
const memberOf = " member"

// Span describes a kind of span. SpanBatch has the span kind CLIENT, all others INTERNAL.
type Span struct {
	Name        string          // followed by a space and the group, unless Plain
	Plain       bool            // Name is the whole name
	Parent      string          // in words
	Description string          // what the span shows
	Attributes  []attribute.Key // that the span can have
	Events      []Event         // that the span can have
}

// Event describes a kind of event on a span.
type Event struct {
	Name        string          // the whole name
	Description string          // when it is added
	Attributes  []attribute.Key // that the event has
}

// EventDeadlock is the event of a deadlock.
var EventDeadlock = Event{
	Name:        "deadlock",
	Description: "The wait was found to be part of a deadlock, whose `cycle` it has; `broken` tells whether this acquire fails to end it.",
	Attributes:  []attribute.Key{KeyDeadlockCycle, KeyDeadlockBroken},
}

// The spans.
var (
	SpanAcquire = Span{
		Name: "acquire", Parent: "caller",
		Description: "One call to Lock or TryLock, from the call to its end. Links to whoever held the lock meanwhile; a wait for permits, which many hold, links to nobody.",
		Attributes: []attribute.Key{
			KeyName, KeyKind, KeyGroup, KeyOutcome, KeyAttempts, KeyWakeups, KeyLease, KeyOwner, KeyToken,
			KeyTakeover, KeyBlockedBy, KeyNode, KeyErrorType,
		},
		Events: []Event{EventDeadlock},
	}
	SpanDeadlock = Span{
		Name: "deadlock", Parent: "acquire",
		Description: "The wait was found to be part of a deadlock. Of no length to speak of: it is there at once, while the acquire, which has an event of the same name, still waits.",
		Attributes:  []attribute.Key{KeyName, KeyKind, KeyGroup, KeyDeadlockCycle, KeyDeadlockBroken, KeyNode},
	}
	SpanHeld = Span{
		Name: "held", Parent: "acquire",
		Description: "The grant, of no length to speak of (1 ns). Parent of all that follows; shows a lock that is still held. " +
			"After 360 renewals a new one, root of a new trace, links to the first.",
		Attributes: []attribute.Key{KeyName, KeyKind, KeyGroup, KeyOwner, KeyToken, KeyLease, KeyOrdinal, KeyNode},
	}
	SpanRenew = Span{
		Name: "renew", Parent: "held",
		Description: "One renewal of one lease, failures included. Links to its batch, if that has a span.",
		Attributes: []attribute.Key{
			KeyName, KeyGroup, KeyOrdinal, KeyAttempt, KeyRemaining, KeyUtilization, KeyLag, KeyBatchSize, KeyNode,
			KeyOutcome, KeyErrorType,
		},
	}
	SpanBatch = Span{
		Name: "renew batch", Plain: true, Parent: "none",
		Description: "One renewal call to Redis, for up to a batch of leases: where a lease in it shows this renewal, or failed. " +
			"by_agent: so many the agent renewed; if all, there was no call.",
		Attributes: []attribute.Key{
			KeyNode, KeyBatchSize, KeyLag, KeyOutcome, KeyRenewed, KeyMissing, KeyTaken, KeyFailed, KeyByAgent,
			KeyErrorType,
			semconv.DBSystemNameKey, semconv.DBOperationNameKey, semconv.ServerAddressKey, semconv.ServerPortKey,
			semconv.DBOperationBatchSizeKey,
		},
	}
	SpanLost = Span{
		Name: "lost", Parent: "held",
		Description: "The lease was lost. Status error, but for a member. Where held isn't sampled: root of a trace of its own, which links to the acquire.",
		Attributes: []attribute.Key{
			KeyName, KeyKind, KeyGroup, KeyOwner, KeyToken, KeyCause, KeyUtilization, KeyNode, KeyErrorType,
		},
	}
	SpanCancel = Span{
		Name: "cancel", Parent: "held",
		Description: "The lease was ended by its own side: its ctx, WithMaxHold, WithHeartbeat or Close. A root of its own as `lost` is, but for a member.",
		Attributes:  []attribute.Key{KeyName, KeyKind, KeyGroup, KeyOwner, KeyToken, KeyReason, KeyNode},
	}
	SpanRelease = Span{
		Name: "release", Parent: "caller of Release",
		Description: "One call to Release. Links to held, and is its child when the caller has no span. After a crash it is the agent's, below the acquire.",
		Attributes: []attribute.Key{
			KeyName, KeyKind, KeyGroup, KeyOwner, KeyToken, KeyOutcome, KeyUnconfirmed, KeyNode, KeyErrorType,
		},
	}
	SpanForce = Span{
		Name: "force unlock", Parent: "caller",
		Description: "One call to ForceUnlock: who called it, and whose lock was taken away. Of a Multi or a Quorum: one for each member.",
		Attributes: []attribute.Key{
			KeyName, KeyKind, KeyGroup, KeyOutcome, KeyForcedBy, KeyOwner, KeyNode, KeyErrorType,
		},
	}
	SpanHold = Span{
		Name: "hold", Parent: "held",
		Description: "The whole time the lock was held, made at its end.",
		Attributes:  []attribute.Key{KeyName, KeyKind, KeyGroup, KeyOwner, KeyToken, KeyEnd, KeyNode},
	}
)

// Spans lists all kinds of spans. It must not be changed.
var Spans = []Span{
	SpanAcquire, SpanDeadlock, SpanHeld, SpanRenew, SpanBatch, SpanLost, SpanCancel, SpanRelease, SpanForce, SpanHold,
}

// Log describes a kind of log record. Message and level are always the same; what varies is in the attributes.
type Log struct {
	Message     string     // always the same
	Level       slog.Level // always the same
	Description string     // when it is written
}

// The log records.
var (
	LogLost   = Log{"lock lost", slog.LevelError, "A lease was lost, with its cause."}
	LogMember = Log{
		"member of a lock lost", slog.LevelWarn,
		"One name of a Multi, or one `node` of a Quorum, was lost; whether the whole is, `lock lost` says.",
	}
	LogCut  = Log{"lease cut off", slog.LevelWarn, "WithMaxHold or WithHeartbeat ended a lease."}
	LogEnd  = Log{"lease canceled", slog.LevelInfo, "A lease ended because its ctx ended or the client was closed."}
	LogFail = Log{
		"lock renewal failed", slog.LevelWarn,
		"An attempt to renew failed; it is tried again while the lease lasts.",
	}
	LogBack     = Log{"lock renewal recovered", slog.LevelInfo, "The first renewal that succeeded after one that failed."}
	LogHeld     = Log{"lock held for long", slog.LevelWarn, "A lease is older than WithHoldWarning allows; once per lease."}
	LogDeadlock = Log{
		"deadlock", slog.LevelWarn,
		"A wait was found to be part of a deadlock, whose waits and holders `cycle` has; `broken` tells whether this one fails to end it. Once per waiter in the cycle.",
	}
	LogForced = Log{
		"lock unlocked by force", slog.LevelWarn,
		"ForceUnlock took a lock from its holder, `owner`: `by` which client, called where (`caller`).",
	}
	LogCrashed = Log{
		"lock freed after a crash", slog.LevelWarn,
		"The agent released a lock because the process of its holder, `owner`, had died: `pid`, 0 if that isn't known.",
	}

	LogMoreLost     = more(LogLost, "locks lost", "losses")
	LogMoreMember   = more(LogMember, "members of locks lost", "lost members")
	LogMoreFail     = more(LogFail, "lock renewals failed", "failed renewals")
	LogMoreBack     = more(LogBack, "lock renewals recovered", "recovered renewals")
	LogMoreCut      = more(LogCut, "leases cut off", "leases cut off")
	LogMoreEnd      = more(LogEnd, "leases canceled", "canceled leases")
	LogMoreHeld     = more(LogHeld, "locks held for long", "locks held for long")
	LogMoreDeadlock = more(LogDeadlock, "deadlocks", "waits in deadlocks")
	LogMoreCrashed  = more(LogCrashed, "locks freed after a crash", "locks freed after a crash")
)

// more describes the record that counts the records of a kind that were not logged by name.
func more(each Log, message, what string) Log {
	return Log{"more " + message, each.Level, "How many " + what + " were not logged by name."}
}

// Logs lists all kinds of log records. It must not be changed.
var Logs = []Log{
	LogLost, LogMember, LogCut, LogEnd, LogFail, LogBack, LogHeld, LogDeadlock, LogForced, LogCrashed,
	LogMoreLost, LogMoreMember, LogMoreFail, LogMoreBack, LogMoreCut, LogMoreEnd, LogMoreHeld, LogMoreDeadlock,
	LogMoreCrashed,
}
