// What `make mixin` writes to dashboards/: each file, by its name there. With a _config of yours, what you deploy:
//   jsonnet -S -c -m out --tla-code config='{ruleLabels: {release: "prometheus"}}' dashboards/mixin/render.jsonnet
function(config={})
  local mixin = (import 'mixin.libsonnet') + { _config+:: config };
  local rules = mixin.prometheusRules.groups;
  local alerts = mixin.prometheusAlerts.groups;
  local dashboards = mixin.grafanaDashboardFiles;

  // YAML as people write it: std.manifestYamlDoc has neither comments nor texts over several lines.
  local indent(by, lines) = [if line == '' then '' else by + line for line in lines];
  local split(text) = std.split(std.rstripChars(text, '\n'), '\n');
  local comment(of) = if 'comment' in of then indent('# ', split(of.comment)) else [];
  local plain(s) = std.member('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/(', s[0])
                   && !std.endsWith(s, ':') && std.length(std.split(s, ': ') + std.split(s, ' #')) == 2;
  local scalar(s) = if plain(s) then s else "'" + std.strReplace(s, "'", "''") + "'";
  local order = [
    'record',
    'alert',
    'expr',
    'for',
    'keep_firing_for',
    'labels',
    'annotations',
    'severity',
    'summary',
    'description',
    'runbook_url',
    'dashboard_url',
  ];
  local fields(object, rule) = std.flattenArrays([
    local value = object[key];
    if std.isObject(value) then [key + ':'] + indent('  ', fields(value, rule))
    else if std.endsWith(value, '\n') then [key + ': |'] + indent('  ', split(value))
    else if key == 'description' then [key + ': >-'] + indent('  ', split(rule.description))
    else [key + ': ' + scalar(value)]
    for key in std.filter(function(k) std.objectHas(object, k), order) + std.setDiff(std.objectFields(object), std.set(order))
  ]);
  // A blank line before each but the first, where they have more to say than an expression.
  local blocks(items, block) = std.flattenArrays([
    (if i > 0 && ('comment' in items[i] || !('record' in items[i])) then [''] else []) + comment(items[i]) + block(items[i])
    for i in std.range(0, std.length(items) - 1)
  ]);
  local item(rule) =
    local lines = fields(rule, rule);
    ['- ' + lines[0]] + indent('  ', lines[1:]);
  local yaml(groups) = ['groups:'] + indent('  ', blocks(groups, function(group) [
    '- name: ' + group.name,
    '  rules:',
  ] + indent('    ', blocks(group.rules, item))));
  // Without the last newline: jsonnet adds it.
  local file(header, lines) = std.join('\n', [std.rstripChars('# ' + line, ' ') for line in split(header)] + lines);

  local rendered = 'Rendered from dashboards/mixin by `make mixin`: change it there, or render it anew with a _config of yours.\n';
  local object(apiVersion, kind, name, labels) = split(std.manifestYamlDoc({
    apiVersion: apiVersion,
    kind: kind,
    metadata: { name: name, labels: labels },
  }, quote_keys=false));

  {
    'prometheus/lockdog-rules.yaml': file(rendered + |||
      Recording rules: what the alerts of lockdog-alerts.yaml are computed from. Load both files.

      Names are level:metric:operations, as Prometheus recommends. The level is group_job: one series for each lockdog_group
      of each job, in each cluster and namespace where your series have these labels. Windows of 5 minutes hold enough
      samples at any scrape interval up to a minute.
    |||, yaml(rules)),
    'prometheus/lockdog-alerts.yaml': file(rendered + |||
      Alerting rules. They need the recording rules of lockdog-rules.yaml, and Prometheus 2.42 for keep_firing_for. Their unit
      tests are in tests/, what to do about each is in ../RUNBOOK.md, and which alert stands for which others there, too.

      severity, by what is at stake: critical wakes somebody, because locks are lost or about to be, or nobody gets any;
      warning is a ticket for working hours; info is to know of. Thresholds are for leases of 30 s and scrapes every 15 to
      30 s. Where yours differ, the comment at the rule says what to look at.

      Labels cluster and namespace are kept where series have them, so that a busy cluster can't hide one that fails. If
      yours are called otherwise, say so in _config, or replace "cluster, namespace" in both files. dashboard_url is a path:
      put the address of your Grafana before it, in _config, here or in the templates of Alertmanager.

      Counters are zeroed when their group appears, so that increase() sees the first event. A rate over 5 minutes times 300
      is a number of events: a floor under every ratio, so that one failure at night in a group of two calls stays quiet.
    |||, yaml(alerts)),
    'prometheus/lockdog-absent.yaml.example': file(rendered + |||
      A template, off until you fill it in: only you know which jobs must take locks. Copy it to lockdog-absent.yaml beside
      the other rules, put your job for orders, and repeat the rule for each further job. Or list them in absentJobs of _config.

      A process shows lockdog_acquisitions_total from its first Lock on. A job that takes none for long after its start needs
      a longer `for`, or no such rule.
    |||, yaml([
      group
      for group in (mixin { _config+:: { absentJobs: ['orders'] } }).prometheusAlerts.groups
      if group.name == 'lockdog.absent'
    ])),
    'kubernetes/prometheusrule.yaml': file(
      rendered,
      object('monitoring.coreos.com/v1', 'PrometheusRule', 'lockdog', mixin._config.ruleLabels)
      + ['spec:'] + indent('  ', yaml(rules + alerts)),
    ),
    'kubernetes/dashboards.yaml': file(rendered, std.join(['---'], [
      object('v1', 'ConfigMap', std.strReplace(name, '.json', ''), mixin._config.dashboardLabels)
      + ['data:', '  %s: |' % name] + indent('    ', split(dashboards[name]))
      for name in std.objectFields(dashboards)
    ])),
  } + {
    ['grafana/' + name]: std.rstripChars(dashboards[name], '\n')
    for name in std.objectFields(dashboards)
  }
