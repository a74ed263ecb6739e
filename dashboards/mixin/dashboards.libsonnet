// The dashboards: those of ../grafana, which are written for the default _config, put into the words of yours.
local templates = import 'template.libsonnet';

local files = {
  'lockdog-overview.json': importstr '../grafana/lockdog-overview.json',
  'lockdog-watchdog.json': importstr '../grafana/lockdog-watchdog.json',
  'lockdog-redis.json': importstr '../grafana/lockdog-redis.json',
};

{
  local config = $._config,
  local template = templates(config),

  local matchers(labels) = std.join(', ', [label + '=~"$' + label + '"' for label in labels]),
  local selector(labels) = std.join(', ', (if config.selector == '' then [] else [config.selector]) + (if labels == [] then [] else [matchers(labels)])),

  // Texts of the dashboards that say what _config says, and where something else is to stand in their place.
  local texts = [
    ['cluster=~"$cluster", namespace=~"$namespace"', selector(config.clusterLabels)],
    ['{cluster=~"$cluster", job=~"$redis_job"', '{%s, job=~"$redis_job"' % matchers(config.redisLabels)],
    ['label_values(redis_up{cluster=~"$cluster"}', 'label_values(redis_up{%s}' % matchers(config.redisLabels)],
    ['cluster, namespace, job', std.join(', ', config.clusterLabels + ['job'])],
    ['https://github.com/lockdog/lockdog/blob/main/dashboards/RUNBOOK.md', config.runbookURL],
    ['{service_name=', '{%s=' % config.logsLabel],
  ] + [
    ['http://%s/debug/locks' % instance, config.debugURL % instance]
    for instance in ['${__field.labels.instance}', '${__data.fields.instance}']
  ],
  local text(s) = template.tidy(std.foldl(function(s, t) std.strReplace(s, t[0], t[1]), texts, s)),

  // A link to traces asks Jaeger. Tempo is asked for the same in TraceQL; %26%26 is && in a URL.
  local toTempo(url) =
    local parts = std.split(url, 'panes=');
    local pane = std.parseJson(parts[1]);
    local query = pane.a.queries[0];
    parts[0] + 'panes=' + std.manifestJsonMinified(pane {
      a+: {
        queries: [{
          refId: query.refId,
          datasource: query.datasource { type: 'tempo' },
          queryType: 'traceql',
          query: '{resource.service.name="%s" %%26%%26 name="%s"}' % [query.service, query.operation],
        }],
      },
    }),
  local link(url) = if config.traces == 'tempo' && std.length(std.split(url, '"type":"jaeger"')) > 1 then toTempo(url) else url,

  local walk(v) =
    if std.isString(v) then link(text(v))
    else if std.isArray(v) then std.map(walk, v)
    else if std.isObject(v) then std.mapWithKey(function(_, e) walk(e), v)
    else v,

  // A variable for each of clusterLabels, after those that narrow it down: as that of cluster is.
  local variable(like, i) =
    local label = config.clusterLabels[i];
    local query = template.tidy('label_values(lockdog_held{%s}, %s)' % [selector(config.clusterLabels[:i]), label]);
    like {
      name: label,
      label: std.asciiUpper(label[0]) + label[1:],
      query: { query: query, refId: label },
      definition: query,
    },
  local variables(list) =
    local byName = { [v.name]: v for v in list };
    [byName.datasource]
    + [variable(byName.cluster, i) for i in std.range(0, std.length(config.clusterLabels) - 1)]
    + [
      if v.name == 'traces' then v { query: config.traces } else walk(v)
      for v in list
      if !std.member(['datasource', 'cluster', 'namespace'], v.name)
    ],

  local dashboard(file) =
    local written = std.parseJson(file);
    walk(written) { templating: { list: variables(written.templating.list) } },

  grafanaDashboards+:: {
    [name]: dashboard(files[name])
    for name in std.objectFields(files)
  },

  // The same as text. What _config doesn't change stays as it was written.
  grafanaDashboardFiles:: {
    [name]:
      local dashboard = $.grafanaDashboards[name];
      if name in files && dashboard == std.parseJson(files[name]) then files[name]
      else std.manifestJsonEx(dashboard, '  ') + '\n'
    for name in std.objectFields($.grafanaDashboards)
  },
}
