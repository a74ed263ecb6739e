// The alerting rules. `comment` is what the YAML says above a rule, `dashboard` what the alert links to.
local templates = import 'template.libsonnet';

local absent(jobs) = {
  name: 'lockdog.absent',
  rules: [
    {
      alert: 'LockdogMetricsAbsent',
      // Without the selector: absent() would give the alert the labels in it.
      expr: std.join(' or ', ['absent(lockdog_acquisitions_total{job="%s"})' % job for job in jobs]),
      'for': '15m',
      labels: { severity: 'warning' },
      dashboard:: 'lockdog-overview',
      annotations: {
        summary: '{{ $labels.job }} has no lock metrics.',
        description: |||
          No process of {{ $labels.job }} has shown metrics of locks for 15 minutes. Its locks may work, but no alert about
          them can fire. First see whether its processes run and are scraped: up with job="{{ $labels.job }}".
        |||,
      },
    },
  ],
};

local groups = [
  {
    name: 'lockdog.leases',
    rules: [
      {
        comment:: |||
          A lease at %(leaseExpiring) was due for renewal at a third, and every attempt since then has failed. No "for": what is left is
          the rest of the lease. The page comes before the loss where a scrape and an evaluation together take less than that:
          at 0.7, 9 s of a lease of 30 s. Where they take longer LockdogLockLost and LockdogAcquireFailing page.
        |||,
        alert: 'LockdogLeaseExpiring',
        expr: 'max by (%(by), lockdog_group) (lockdog_lease_utilization_worst_ratio{%(selector)}) > %(leaseExpiring)',
        keep_firing_for: '5m',
        labels: { severity: 'critical' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: 'Locks of group {{ $labels.lockdog_group }} are about to be lost.',
          description: |||
            A lease of group {{ $labels.lockdog_group }} in {{ $labels.job }} has used up {{ $value | humanizePercentage }} of its time
            since its last renewal; normal is up to a third. At 100 % it is lost. First see whether Redis answers, and which
            errors come: lockdog_errors_total by error_type.
          |||,
        },
      },
      {
        comment:: |||
          missing and taken: somebody else may have had the lock before its holder knew, so one is enough. Of unreachable
          and stalled the holder was told in time: one is a ticket, %(lossesThatPage) in 5 minutes are an outage.
        |||,
        alert: 'LockdogLockLost',
        expr: |||
          (group_job:lockdog_losses:increase5m{lockdog_cause=~"missing|taken"} > 0)
          or
          (round(group_job:lockdog_losses:increase5m{lockdog_cause=~"unreachable|stalled"}) >= %(lossesThatPage))
        |||,
        labels: { severity: 'critical' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Locks of group {{ $labels.lockdog_group }} were lost ({{ $labels.lockdog_cause }}).',
          description: |||
            About {{ printf "%.0f" $value }} leases of group {{ $labels.lockdog_group }} in {{ $labels.job }} were lost within
            5 minutes, cause {{ $labels.lockdog_cause }}: work under these locks may have run twice. First find the locks:
            their names, owners and traces are in the log lines "lock lost".
          |||,
        },
      },
      {
        comment:: |||
          What ForceUnlock takes away somebody wanted gone, and the log says who: no alert.
        |||,
        alert: 'LockdogFewLocksLost',
        expr: 'group_job:lockdog_losses:increase5m{lockdog_cause!~"missing|taken|forced"} > 0',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'A few locks of group {{ $labels.lockdog_group }} were lost ({{ $labels.lockdog_cause }}).',
          description: |||
            About {{ printf "%.0f" $value }} leases of group {{ $labels.lockdog_group }} in {{ $labels.job }} were lost within
            5 minutes, cause {{ $labels.lockdog_cause }}: their work was told to stop. First find the locks: their names, owners
            and traces are in the log lines "lock lost".
          |||,
        },
      },
      {
        comment:: |||
          A Quorum's lock lives while a majority of its nodes has it. Where a lock of the group was lost as a whole, as a Multi
          is with one of its names, the two above say so.
        |||,
        alert: 'LockdogMembersLost',
        expr: |||
          group_job:lockdog_members_lost:increase5m{lockdog_cause!="forced"} > 0
          unless on (%(by), lockdog_group)
          sum by (%(by), lockdog_group) (group_job:lockdog_losses:increase5m) > 0
        |||,
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Locks of group {{ $labels.lockdog_group }} were lost at single nodes ({{ $labels.lockdog_cause }}).',
          description: |||
            About {{ printf "%.0f" $value }} times within 5 minutes a lock of group {{ $labels.lockdog_group }} in {{ $labels.job }} was
            lost at one node of a Quorum, or one name of a Multi was, cause {{ $labels.lockdog_cause }}. A Quorum's lock lives on at
            the other nodes while they are a majority. A Multi that was lost as a whole counts in the group of its first name.
            First find the node: it is in the log lines "member of a lock lost".
          |||,
        },
      },
      {
        comment:: |||
          %(leaseAtRisk) of a lease without a renewal: the first attempt, at a third, has failed. The second half sees failures that
          never last until a scrape: a share of the attempts, and more than %(renewalsFailed) of them.
        |||,
        alert: 'LockdogRenewalFailures',
        expr: |||
          (max by (%(by), lockdog_group) (lockdog_lease_utilization_worst_ratio{%(selector)}) > %(leaseAtRisk))
          or
          (
            group_job:lockdog_renewals_failed:rate5m / group_job:lockdog_renewals:rate5m > %(renewalsFailedRatio)
            and
            300 * group_job:lockdog_renewals_failed:rate5m > %(renewalsFailed)
          )
        |||,
        keep_firing_for: '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: 'Renewals of locks of group {{ $labels.lockdog_group }} fail.',
          description: |||
            A lease of group {{ $labels.lockdog_group }} in {{ $labels.job }} has used up {{ $value | humanizePercentage }} of its time
            since its last renewal or, where all were renewed in the end, that share of the attempts failed in 5 minutes. First
            see whether Redis answers, and which errors come: lockdog_errors_total by error_type.
          |||,
        },
      },
      {
        comment:: |||
          The objective: %(renewalObjectivePercent) % of the attempts to renew succeed, over 30 days. At 6 times the rate that uses the budget up
          in 30 days, 6 hours use 5 % of it; at that very rate, 3 days use 10 %. The short window ends the alert
          soon after the trouble. The floor, 10 failures in the long window, is for groups that renew seldom: the sum of what
          failed in each 5 minutes, as the mean of a young series would make ten of one failure.
        |||,
        alert: 'LockdogRenewalErrorBudget',
        expr: |||
          (
            group_job:lockdog_renewals_failed:ratio_rate6h > 6 * %(renewalBudget)
            and
            group_job:lockdog_renewals_failed:ratio_rate30m > 6 * %(renewalBudget)
            and
            300 * sum_over_time(group_job:lockdog_renewals_failed:rate5m[6h:5m]) > 10
          )
          or
          (
            group_job:lockdog_renewals_failed:ratio_rate3d > %(renewalBudget)
            and
            group_job:lockdog_renewals_failed:ratio_rate6h > %(renewalBudget)
            and
            300 * sum_over_time(group_job:lockdog_renewals_failed:rate5m[3d:5m]) > 10
          )
        |||,
        'for': '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: 'Renewals of group {{ $labels.lockdog_group }} fail more often than the objective of %(renewalObjectivePercent) % allows.',
          description: |||
            {{ $value | humanizePercentage }} of the renewals of group {{ $labels.lockdog_group }} in {{ $labels.job }} failed, over
            6 hours or over 3 days. The objective is %(renewalObjectivePercent) % of all attempts over 30 days, and at this rate it is missed.
            First see which errors come, and when: lockdog_errors_total by error_type over the last days.
          |||,
        },
      },
      {
        comment:: |||
          Healthy leases are renewed at a third of their time. Over 0.8 of it used up is a loss that did not quite happen.
        |||,
        alert: 'LockdogLeaseMarginLow',
        expr: |||
          group_job:lockdog_renewals_late:rate5m / group_job:lockdog_renewals:rate5m > %(renewalsLateRatio)
          and
          300 * group_job:lockdog_renewals_late:rate5m > %(renewalsLate)
        |||,
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: 'Locks of group {{ $labels.lockdog_group }} are renewed at the last moment.',
          description: |||
            {{ $value | humanizePercentage }} of the renewals of group {{ $labels.lockdog_group }} in {{ $labels.job }} came when over
            80 % of the lease was used up; normal is a third. A little more delay and locks are lost. First see whether
            attempts fail or come late: error_type of lockdog_errors_total, and the schedule lag.
          |||,
        },
      },
    ],
  },
  {
    name: 'lockdog.watchdog',
    rules: [
      {
        comment:: |||
          The watchdog makes a pass every second at least, while there are leases. %(watchdogStalled) without one are no jitter.
        |||,
        alert: 'LockdogWatchdogStalled',
        expr: 'max by (%(by), instance) (lockdog_watchdog_tick_age_seconds{%(selector)}) > %(watchdogStalled)',
        keep_firing_for: '5m',
        labels: { severity: 'critical' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: 'The watchdog of {{ $labels.instance }} stands still.',
          description: |||
            The watchdog of {{ $labels.instance }} ({{ $labels.job }}) made its last pass {{ $value | humanizeDuration }} ago; it
            makes one every second. Nothing is renewed meanwhile: its leases will be lost. First see whether the process gets
            CPU time; if it does, take a goroutine dump and restart it.
          |||,
        },
      },
      {
        comment:: |||
          The mean of all calls, and for 10 minutes: one pause of the process passes. The second half is for native
          histograms. With leases shorter than some 5 s lower the %(watchdogLag): a tenth of the renewal interval is a good bound.
        |||,
        alert: 'LockdogWatchdogLagging',
        expr: |||
          (
            sum by (%(by), instance) (rate(lockdog_watchdog_schedule_lag_seconds_sum{%(selector)}[5m]))
              / sum by (%(by), instance) (rate(lockdog_watchdog_schedule_lag_seconds_count{%(selector)}[5m])) > %(watchdogLag)
            and
            sum by (%(by), instance) (increase(lockdog_watchdog_schedule_lag_seconds_count{%(selector)}[5m])) > 10
          )
          or
          (
            histogram_sum(sum by (%(by), instance) (rate(lockdog_watchdog_schedule_lag_seconds{%(selector)}[5m])))
              / histogram_count(sum by (%(by), instance) (rate(lockdog_watchdog_schedule_lag_seconds{%(selector)}[5m]))) > %(watchdogLag)
            and
            histogram_count(sum by (%(by), instance) (increase(lockdog_watchdog_schedule_lag_seconds{%(selector)}[5m]))) > 10
          )
        |||,
        'for': '10m',
        keep_firing_for: '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: 'The watchdog of {{ $labels.instance }} renews late.',
          description: |||
            Renewal calls of {{ $labels.instance }} ({{ $labels.job }}) go out {{ $value | humanizeDuration }} late in the mean;
            normal are milliseconds. First see whether the process is short of CPU time: container throttling, load, GC.
          |||,
        },
      },
    ],
  },
  {
    name: 'lockdog.agent',
    rules: [
      {
        alert: 'LockdogAgentDown',
        expr: |||
          sum by (%(by), instance) (increase(lockdog_agent_requests_total{lockdog_outcome="error", %(selector)}[10m])) > 0
          unless
          sum by (%(by), instance) (increase(lockdog_agent_requests_total{lockdog_outcome=~"ok|partial", %(selector)}[10m])) > 0
        |||,
        'for': '5m',
        labels: { severity: 'info' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: '{{ $labels.instance }} renews without the agent of its machine.',
          description: |||
            In 10 minutes {{ $labels.instance }} ({{ $labels.job }}) has asked the agent of its machine {{ printf "%.0f" $value }} times,
            and the agent has renewed nothing. No lease is lost, the process renews by itself, but Redis gets more calls.
            First see whether the agent runs: lockdog agent status, on that machine.
          |||,
        },
      },
      {
        comment:: |||
          The agent counts them, so job is the agent's. Without it, LockdogHolderVanished comes a lease later.
        |||,
        alert: 'LockdogHolderCrashed',
        expr: 'group_instance:lockdog_releases_crashed:increase5m > 0',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Holders of locks of group {{ $labels.lockdog_group }} crashed.',
          description: |||
            In 5 minutes the agent {{ $labels.instance }} ({{ $labels.job }}) has freed about {{ printf "%.0f" $value }} locks of group
            {{ $labels.lockdog_group }} whose holders died without a release. Others have these locks now; what was begun may be half done.
            First see which processes died: the agent's log has their pid and owner as "lock freed after a crash".
          |||,
        },
      },
    ],
  },
  {
    name: 'lockdog.callers',
    rules: [
      {
        comment:: |||
          Most calls fail with an error, and calls to Redis fail: without these the error is the program's own, such as a
          deadlock. A timeout is no error: somebody else holds the lock, as a leader does for days.
        |||,
        alert: 'LockdogAcquireFailing',
        expr: |||
          sum by (%(by), lockdog_group) (rate(lockdog_acquisitions_total{lockdog_outcome="error", %(selector)}[5m]))
            / sum by (%(by), lockdog_group) (
              rate(lockdog_acquisitions_total{lockdog_outcome=~"acquired|held|timeout|error", %(selector)}[5m])
            ) > %(acquireFailingRatio)
          and
          sum by (%(by), lockdog_group) (increase(lockdog_acquisitions_total{lockdog_outcome="error", %(selector)}[5m])) > %(acquisitionsFailed)
          and on (%(by))
          sum by (%(by)) (increase(lockdog_errors_total{lockdog_operation="acquire", %(selector)}[5m])) > 5
        |||,
        'for': '2m',
        keep_firing_for: '5m',
        labels: { severity: 'critical' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Nobody gets locks of group {{ $labels.lockdog_group }}.',
          description: |||
            {{ $value | humanizePercentage }} of the calls for a lock of group {{ $labels.lockdog_group }} in {{ $labels.job }} failed in
            the last 5 minutes, and Redis doesn't answer, or refuses. First see whether Redis answers, and which errors come:
            lockdog_errors_total with lockdog_operation="acquire", by error_type.
          |||,
        },
      },
      {
        alert: 'LockdogAcquireTimeouts',
        expr: |||
          group_job:lockdog_acquisitions_failed:rate5m
            / (group_job:lockdog_acquisitions_failed:rate5m + group_job:lockdog_acquisitions_granted:rate5m) > %(acquireFailedRatio)
          and
          300 * group_job:lockdog_acquisitions_failed:rate5m > %(acquisitionsFailed)
        |||,
        'for': '2m',
        keep_firing_for: '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Calls for locks of group {{ $labels.lockdog_group }} end without one.',
          description: |||
            {{ $value | humanizePercentage }} of the calls for a lock of group {{ $labels.lockdog_group }} in {{ $labels.job }} timed
            out or failed in the last 5 minutes. First tell the two apart: lockdog_acquisitions_total by lockdog_outcome.
            timeout is contention or a holder that hangs; error is Redis or, if lockdog_errors_total shows no failed
            calls to it, the program: a deadlock, or a lock that is taken again while it is held.
          |||,
        },
      },
      {
        comment:: |||
          A lock that is held for as long as its process lives is no fault, so groups called %(heldByDesign) are left out. Name yours
          here, or change the time to what your longest job takes.
        |||,
        alert: 'LockdogLockHeldTooLong',
        expr: 'max by (%(by), lockdog_group) (lockdog_hold_oldest_age_seconds{lockdog_group!~"%(heldByDesign)", %(selector)}) > %(heldTooLong)',
        'for': '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'A lock of group {{ $labels.lockdog_group }} has been held for {{ $value | humanizeDuration }}.',
          description: |||
            The oldest lock of group {{ $labels.lockdog_group }} in {{ $labels.job }} has been held for
            {{ $value | humanizeDuration }}. Its process lives, but what it does under the lock may hang. First find the lock and
            its trace, on the page /debug/locks or in the log lines "lock held for long".
          |||,
        },
      },
      {
        alert: 'LockdogZombieCut',
        expr: |||
          group_job:lockdog_cancellations:increase5m{lockdog_reason=~"max_hold|heartbeat"} > 0
        |||,
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Holders of locks of group {{ $labels.lockdog_group }} were cut off ({{ $labels.lockdog_reason }}).',
          description: |||
            About {{ printf "%.0f" $value }} holders of group {{ $labels.lockdog_group }} in {{ $labels.job }} were cut off within
            5 minutes by {{ $labels.lockdog_reason }}: they held for too long or gave no sign of life. First look at their
            traces, from the log lines "lease cut off", for what they hang in.
          |||,
        },
      },
      {
        alert: 'LockdogReleaseFailing',
        expr: |||
          group_job:lockdog_releases_failed:rate5m / group_job:lockdog_releases:rate5m > %(releasesFailedRatio)
          and
          300 * group_job:lockdog_releases_failed:rate5m > %(releasesFailed)
        |||,
        'for': '2m',
        keep_firing_for: '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Releases of locks of group {{ $labels.lockdog_group }} fail.',
          description: |||
            {{ $value | humanizePercentage }} of the releases of group {{ $labels.lockdog_group }} in {{ $labels.job }} got no answer
            from Redis in the last 5 minutes. Such locks stay taken until their lease is over, and others wait for that long.
            First see which errors come: lockdog_errors_total with lockdog_operation="release", by error_type.
          |||,
        },
      },
      {
        comment:: |||
          Set it to a fraction of the requests or workers that may wait without harm.
        |||,
        alert: 'LockdogWaitersPilingUp',
        expr: 'sum by (%(by), lockdog_group) (lockdog_acquire_waiting{%(selector)}) > %(waiters)',
        'for': '10m',
        keep_firing_for: '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: '{{ printf "%.0f" $value }} callers wait for locks of group {{ $labels.lockdog_group }}.',
          description: |||
            {{ printf "%.0f" $value }} calls in {{ $labels.job }} wait for locks of group {{ $labels.lockdog_group }}, more than %(waiters) for
            10 minutes. First see who holds what they wait for: the page /debug/locks, or the blocked_by links of their
            acquire spans.
          |||,
        },
      },
      {
        comment:: |||
          One is enough: it is a bug, and its waits last until a ctx ends. Each waiter in the cycle counts once, in the group of the lock
          that it waits for; so several groups may fire for one deadlock.
        |||,
        alert: 'LockdogDeadlock',
        expr: 'group_job:lockdog_deadlocks:increase5m > 0',
        keep_firing_for: '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Callers that wait for locks of group {{ $labels.lockdog_group }} are in a deadlock.',
          description: |||
            About {{ printf "%.0f" $value }} waits in {{ $labels.job }} for locks of group {{ $labels.lockdog_group }} were found to be part
            of a deadlock within 5 minutes: each waits for what another one in the cycle holds. They wait until their ctx ends, unless
            WithDeadlockBreaking is set. First see the cycle: it is in the log lines "deadlock", or run lockdog graph.
          |||,
        },
      },
    ],
  },
  {
    name: 'lockdog.wakeups',
    rules: [
      {
        alert: 'LockdogPubSubDown',
        expr: 'min by (%(by), instance) (lockdog_pubsub_connected{%(selector)}) < 1',
        'for': '2m',
        keep_firing_for: '5m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: '{{ $labels.instance }} has no subscription for wake-ups.',
          description: |||
            {{ $labels.instance }} ({{ $labels.job }}) has wanted a subscription for 2 minutes and has none. Its waiters ask
            twice a second instead: they get locks up to half a second late, and Redis has more to do. First see the
            errors: lockdog_errors_total with lockdog_operation="subscribe", by error_type.
          |||,
        },
      },
      {
        comment:: |||
          A connection that breaks once costs each waiter one message. Ten minutes of it are no accident.
        |||,
        alert: 'LockdogWakeupsMissed',
        expr: 'sum by (%(by), lockdog_group) (increase(lockdog_takeovers_total{lockdog_reason="message_missed", %(selector)}[5m])) > %(messagesMissed)',
        'for': '10m',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-watchdog',
        annotations: {
          summary: 'Waiters of group {{ $labels.lockdog_group }} miss the release messages.',
          description: |||
            About {{ printf "%.0f" $value }} locks of group {{ $labels.lockdog_group }} in {{ $labels.job }} were had in 5 minutes
            without their release having been heard. First see whether the subscription breaks or is refused:
            lockdog_pubsub_reconnects_total, and lockdog_errors_total with lockdog_operation="subscribe".
          |||,
        },
      },
      {
        alert: 'LockdogHolderVanished',
        expr: 'sum by (%(by), lockdog_group) (group_job:lockdog_takeovers:increase5m{lockdog_reason="expired"}) > 0',
        labels: { severity: 'warning' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: 'Holders of locks of group {{ $labels.lockdog_group }} vanished.',
          description: |||
            About {{ printf "%.0f" $value }} locks of group {{ $labels.lockdog_group }} were had by {{ $labels.job }} in 5 minutes because
            the lease of their holder had run out: it ended, or lost Redis, without a release. First see which processes were
            killed or crashed: restarts, OOM kills.
          |||,
        },
      },
    ],
  },
  {
    name: 'lockdog.telemetry',
    rules: [
      {
        alert: 'LockdogCardinalityOverflow',
        expr: |||
          count by (%(by)) (
            lockdog_acquisitions_total{lockdog_group="_other", %(selector)} or {__name__=~"lockdog_.+", otel_metric_overflow="true", %(selector)}
          )
        |||,
        'for': '5m',
        labels: { severity: 'info' },
        dashboard:: 'lockdog-overview',
        annotations: {
          summary: '{{ $labels.job }} has more lock groups than metrics can carry.',
          description: |||
            {{ $labels.job }} has {{ printf "%.0f" $value }} series in which groups are lumped together: names of locks make more
            than 20 groups in a client, or WithGroup more than 50. Locks work; alerts and dashboards no longer tell these groups apart.
            First see which part of the names before the colon varies, and set WithGroup.
          |||,
        },
      },
    ],
  },
];

{
  local config = $._config,
  local template = templates(config),

  // complete fills in the parameters, and where to read on. The dashboard opens with what the summary names.
  local complete(rule, labels) = rule {
    local variables = [
      [label, label]
      for label in labels + ['job']
    ] + [
      v
      for v in [['group', 'lockdog_group'], ['instance', 'instance']]
      if std.length(std.split(rule.annotations.summary, '$labels.' + v[1])) > 1
    ],
    [if 'comment' in rule then 'comment']:: template.fill(rule.comment),
    description:: template.fill(rule.annotations.description),
    expr: template.promql(rule.expr),
    annotations: {
      summary: template.fill(rule.annotations.summary),
      description: std.strReplace(std.rstripChars(template.fill(rule.annotations.description), '\n'), '\n', ' '),
      runbook_url: '%s#%s' % [config.runbookURL, std.asciiLower(rule.alert)],
      dashboard_url: '%s/d/%s?%s' % [config.dashboardURL, rule.dashboard, std.join('&', [
        'var-%s={{ urlquery $labels.%s }}' % v
        for v in variables
      ])],
    },
  },

  prometheusAlerts+:: {
    groups+: [
      group { rules: [complete(rule, config.clusterLabels) for rule in group.rules] }
      for group in groups
    ] + [
      group { rules: [complete(rule, []) for rule in group.rules] }
      for group in [absent(config.absentJobs)]
      if config.absentJobs != []
    ],
  },
}
