// The recording rules: what the alerts are computed from. `comment` is what the YAML says above a rule or a group.
local templates = import 'template.libsonnet';

// risenIn5m is what a counter of rare events has risen in 5 minutes, by some labels beside the group.
local risenIn5m(metric, labels='') = std.strReplace(std.strReplace(|||
  sum by (%(by), lockdog_groupLABELS) (
    (METRIC{%(selector)} unless last_over_time(METRIC{%(selector)}[30m] offset 5m))
    or
    (METRIC{%(selector)} - last_over_time(METRIC{%(selector)}[30m] offset 5m) > increase(METRIC{%(selector)}[5m]))
    or
    ((METRIC{%(selector)} < last_over_time(METRIC{%(selector)}[30m] offset 5m)) > increase(METRIC{%(selector)}[5m]))
    or
    increase(METRIC{%(selector)}[5m])
  )
|||, 'METRIC', metric), 'LABELS', labels);

local groups = [
  {
    name: 'lockdog.rules',
    rules: [
      {
        comment:: |||
          Renewals, one for each lease and attempt. Failed are all that did not renew: error, missing, taken.
        |||,
        record: 'group_job:lockdog_renewals:rate5m',
        expr: 'sum by (%(by), lockdog_group) (rate(lockdog_renewals_total{%(selector)}[5m]))',
      },
      {
        record: 'group_job:lockdog_renewals_failed:rate5m',
        expr: 'sum by (%(by), lockdog_group) (rate(lockdog_renewals_total{lockdog_outcome!="renewed", %(selector)}[5m]))',
      },
      {
        record: 'group_job:lockdog_renewals_late:rate5m',
        expr: 'sum by (%(by), lockdog_group) (rate(lockdog_renewals_late_total{%(selector)}[5m]))',
      },
      {
        comment:: |||
          Calls that wanted a lock and got it, or did not. Left out: held is TryLock's answer, canceled the caller's own
          wish, and a reentry asks nobody.
        |||,
        record: 'group_job:lockdog_acquisitions_granted:rate5m',
        expr: 'sum by (%(by), lockdog_group) (rate(lockdog_acquisitions_total{lockdog_outcome="acquired", %(selector)}[5m]))',
      },
      {
        record: 'group_job:lockdog_acquisitions_failed:rate5m',
        expr: 'sum by (%(by), lockdog_group) (rate(lockdog_acquisitions_total{lockdog_outcome=~"timeout|error", %(selector)}[5m]))',
      },
      {
        comment:: |||
          Leases lost, by cause. increase() is blind to what came before the first scrape of a series, so a series that
          is new counts with all it has. It is blind to what came in a gap, too, when a process stood still or could not be
          scraped: then what the series has risen since its last scrape counts, or all it has, if it has fallen.
        |||,
        record: 'group_job:lockdog_losses:increase5m',
        expr: risenIn5m('lockdog_losses_total', ', lockdog_cause'),
      },
      {
        comment:: |||
          The same of single names of a Multi, and of single nodes of a Quorum.
        |||,
        record: 'group_job:lockdog_members_lost:increase5m',
        expr: risenIn5m('lockdog_members_lost_total', ', lockdog_cause'),
      },
      {
        comment:: |||
          Waits that were found to be part of a deadlock, counted as losses are: a program may deadlock before its first scrape.
        |||,
        record: 'group_job:lockdog_deadlocks:increase5m',
        expr: risenIn5m('lockdog_deadlocks_total'),
      },
      {
        comment:: |||
          Locks that were had because their holder vanished, and holders that were cut off, counted likewise.
        |||,
        record: 'group_job:lockdog_takeovers:increase5m',
        expr: risenIn5m('lockdog_takeovers_total', ', lockdog_reason'),
      },
      {
        comment:: |||
          Locks that the agent of a machine (instance) freed because the process of their holder had died, counted likewise.
        |||,
        record: 'group_instance:lockdog_releases_crashed:increase5m',
        expr: std.strReplace(risenIn5m('lockdog_releases_total', ', instance'), '%(selector)', 'lockdog_outcome="crashed", %(selector)'),
      },
      {
        record: 'group_job:lockdog_cancellations:increase5m',
        expr: risenIn5m('lockdog_cancellations_total', ', lockdog_reason'),
      },
      {
        comment:: |||
          Releases. Failed are those that Redis gave no answer to.
        |||,
        record: 'group_job:lockdog_releases:rate5m',
        expr: 'sum by (%(by), lockdog_group) (rate(lockdog_releases_total{%(selector)}[5m]))',
      },
      {
        record: 'group_job:lockdog_releases_failed:rate5m',
        expr: 'sum by (%(by), lockdog_group) (rate(lockdog_releases_total{lockdog_outcome="error", %(selector)}[5m]))',
      },
    ],
  },
  {
    comment:: |||
      The share of renewals that failed, over the windows of the error budget. Sums of the rates above are far cheaper
      than rates over days of raw samples, and nothing is lost by it when a counter starts anew.
    |||,
    name: 'lockdog.budget.rules',
    rules: [
      {
        record: 'group_job:lockdog_renewals_failed:ratio_rate30m',
        expr: |||
          sum_over_time(group_job:lockdog_renewals_failed:rate5m[30m])
            / sum_over_time(group_job:lockdog_renewals:rate5m[30m])
        |||,
      },
      {
        record: 'group_job:lockdog_renewals_failed:ratio_rate6h',
        expr: |||
          sum_over_time(group_job:lockdog_renewals_failed:rate5m[6h])
            / sum_over_time(group_job:lockdog_renewals:rate5m[6h])
        |||,
      },
      {
        record: 'group_job:lockdog_renewals_failed:ratio_rate3d',
        expr: |||
          sum_over_time(group_job:lockdog_renewals_failed:rate5m[3d])
            / sum_over_time(group_job:lockdog_renewals:rate5m[3d])
        |||,
      },
    ],
  },
];

{
  local template = templates($._config),

  prometheusRules+:: {
    groups+: [
      group { rules: [rule { expr: template.promql(rule.expr) } for rule in group.rules] }
      for group in groups
    ],
  },
}
