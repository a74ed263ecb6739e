// What the rules are written with: PromQL and texts with parameters, each %(name) of _config or of what is computed here.
// %(by) are the labels to aggregate by, %(selector) stands last in the braces of each series.
function(config)
  local parameters = config {
    by: std.join(', ', config.clusterLabels + ['job']),
    renewalBudget: 1 - config.renewalObjective,
    renewalObjectivePercent: 100 * config.renewalObjective,
  };
  local values = [
    ['%(' + name + ')', if std.isNumber(parameters[name]) then '%g' % parameters[name] else parameters[name]]
    for name in std.objectFields(parameters)
    if std.isNumber(parameters[name]) || std.isString(parameters[name])
  ];
  {
    fill(text):: std.foldl(function(s, v) std.strReplace(s, v[0], v[1]), values, text),
    tidy(expr):: std.strReplace(std.strReplace(std.strReplace(expr, ', }', '}'), '{, ', '{'), '{}', ''),
    promql(expr):: self.tidy(self.fill(expr)),
  }
