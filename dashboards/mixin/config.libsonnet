// Everything that differs from one user to the next. Override it beside the import:
//   (import 'mixin.libsonnet') + { _config+:: { selector: 'job=~"orders|billing"' } }
{
  _config+:: {
    // Which of the series that lockdog makes the rules and dashboards look at, such as 'job=~"orders|billing"'. Empty: all.
    selector: '',
    // The labels by which your Prometheus tells apart what must not be added up. Rules keep them, and dashboards have a
    // variable for each. A label that no series has does no harm.
    clusterLabels: ['cluster', 'namespace'],
    // Those of them whose values the Redis exporter shares with the programs: it may run in a namespace of its own.
    redisLabels: [label for label in self.clusterLabels if label != 'namespace'],
    // The jobs that must take locks: LockdogMetricsAbsent fires when one of them has no metrics.
    absentJobs: [],

    // Where annotations and dashboards lead. dashboardURL is the address of your Grafana.
    runbookURL: 'https://github.com/lockdog/lockdog/blob/main/dashboards/RUNBOOK.md',
    dashboardURL: '',
    debugURL: 'http://%s/debug/locks',  // %s is the instance
    traces: 'jaeger',  // or tempo; service.name is the job
    logsLabel: 'service_name',  // the label in Loki whose value is the job

    // Labels of the Kubernetes objects: what the rule selector of your Prometheus and the sidecar of your Grafana look for.
    ruleLabels: { 'app.kubernetes.io/name': 'lockdog' },
    dashboardLabels: { 'app.kubernetes.io/name': 'lockdog', grafana_dashboard: '1' },

    // Thresholds, for leases of 30 s and scrapes every 15 to 30 s. The comment at each rule says what to look at.
    leaseExpiring: 0.7,  // of a lease, without a renewal
    leaseAtRisk: 0.5,  // of a lease, without a renewal
    lossesThatPage: 3,  // in 5 minutes, of those that the holder was told of in time
    renewalsFailedRatio: 0.2,
    renewalsFailed: 10,  // in 5 minutes
    renewalObjective: 0.999,  // of all attempts, over 30 days
    renewalsLateRatio: 0.01,
    renewalsLate: 2,  // in 5 minutes
    watchdogStalled: 5,  // seconds
    watchdogLag: 0.5,  // seconds; a tenth of the renewal interval is a good bound
    acquireFailingRatio: 0.5,  // pages
    acquireFailedRatio: 0.05,
    acquisitionsFailed: 5,  // in 5 minutes
    heldTooLong: 3600,  // seconds
    heldByDesign: 'leader.*',  // groups
    releasesFailedRatio: 0.01,
    releasesFailed: 5,  // in 5 minutes
    waiters: 50,
    messagesMissed: 3,  // in 5 minutes
  },
}
