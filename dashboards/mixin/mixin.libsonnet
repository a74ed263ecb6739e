// lockdog's rules and dashboards, as a mixin: prometheusRules, prometheusAlerts and grafanaDashboards, by what _config says.
(import 'config.libsonnet') +
(import 'rules.libsonnet') +
(import 'alerts.libsonnet') +
(import 'dashboards.libsonnet')
