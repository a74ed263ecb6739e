// Package dashboards has Grafana dashboards, Prometheus rules and a runbook for lockdog, as files and, for programs, as
// FS.
//
//   - grafana/*.json: three dashboards, to be imported as they are or provisioned.
//   - prometheus/lockdog-rules.yaml and lockdog-alerts.yaml: recording and alerting rules, for rule_files of
//     prometheus.yml; both are needed. lockdog-absent.yaml.example is a template, off until it is filled in.
//   - RUNBOOK.md: a section for each alert.
//   - mixin: the jsonnet source of the rules, which also adapts rules and dashboards to other labels and thresholds. It
//     is not in FS.
//   - kubernetes: the rules as a PrometheusRule, and the dashboards as ConfigMaps. They are not in FS.
//   - compose.yaml: all of it at work, with an example service. It is not in FS.
//
// A program that provisions its own monitoring writes the files where Prometheus and Grafana look for them,
// with [os.CopyFS], or serves them with [net/http.FileServerFS].
//
// The rules assume the names that telemetry/names.go lists, without labels for the scope. They aggregate by cluster,
// namespace and job, and most of them also by lockdog_group or instance. promtool tests them. Other tests check that
// rules and dashboards use only names of the code, and that each metric of the code is in a rule or a dashboard.
package dashboards

import "embed"

// FS holds the dashboards, the rules and the runbook, under their paths in this directory.
//
//go:embed RUNBOOK.md grafana/*.json prometheus/*.yaml prometheus/*.example
var FS embed.FS
