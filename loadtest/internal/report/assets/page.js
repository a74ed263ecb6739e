"use strict";
(() => {
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const el = (tag, cls, text) => {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const whole = n => n.toLocaleString("en");
  const brief = n => n >= 1e6 ? n / 1e6 + "M" : n >= 1e3 ? n / 1e3 + "k" : String(+n.toPrecision(3));
  const figure = n => n >= 100 ? whole(Math.round(n)) : String(+n.toPrecision(3));
  const swatch = (mode, text) => {
    const s = el("span"), box = el("span", "swatch");
    box.style.background = colour(mode);
    s.append(box, text);
    return s;
  };
  const axis = more => Object.assign({
    stroke: colour("soft"), font: "12px system-ui, sans-serif", grid: {stroke: colour("line"), width: 1}, ticks: {show: false},
  }, more);
  // Only whole powers of ten get a line and a label on a logarithmic axis.
  const tens = (u, splits) => splits.map(v => v !== null && Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? v : null);
  const logarithmic = more => axis(Object.assign({
    filter: tens, values: (u, splits) => splits.map(v => v === null ? "" : brief(v)), grid: {stroke: colour("line"), width: 1, filter: tens},
  }, more));

  let plots = [];
  const plot = (box, opts, data) => {
    const p = new uPlot(Object.assign({width: Math.max(box.clientWidth, 280), legend: {show: false}, cursor: {show: false}}, opts), data, box);
    plots.push([p, box]);
  };

  function rates() {
    const curves = report.predictions || [];
    if (curves.length === 0) return;
    const section = document.getElementById("rates"), legend = section.querySelector(".legend"), box = section.querySelector(".plot");
    section.hidden = false;
    legend.replaceChildren();
    box.replaceChildren();
    const xs = curves[0].locks, data = [xs], series = [{}];
    for (const c of curves) {
      legend.append(swatch(c.mode, c.mode));
      data.push(c.calls);
      series.push({stroke: colour(c.mode), width: 1.5, dash: [5, 4], points: {show: false}});
      const measured = new Map(report.rows.filter(r => r.mode === c.mode && r.calls_per_s > 0).map(r => [r.locks, r.calls_per_s]));
      data.push(xs.map(x => measured.get(x) ?? null));
      series.push({stroke: colour(c.mode), width: 0, paths: () => null, points: {show: true, size: 9, fill: colour(c.mode), stroke: colour("card"), width: 1.5}});
    }
    const ys = data.slice(1).flat().filter(y => y > 0);
    const low = Math.min(...ys) / 1.5, high = Math.max(...ys) * 1.5;
    plot(box, {
      height: 330, series,
      scales: {x: {time: false, distr: 3, range: [xs[0], xs.at(-1)]}, y: {distr: 3, range: [low, high]}},
      axes: [logarithmic({label: "locks held", size: 30, labelSize: 22, labelFont: "12px system-ui, sans-serif"}),
        logarithmic({label: "calls a second", labelSize: 22, labelFont: "12px system-ui, sans-serif", size: 56})],
      hooks: {draw: [u => labels(u, curves)]},
    }, data);
  }

  // What was measured is written beside its dot.
  function labels(u, curves) {
    const ctx = u.ctx;
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    curves.forEach((c, i) => u.data[2 * i + 2].forEach((y, k) => {
      if (y === null) return;
      const x = u.valToPos(u.data[0][k], "x", true), right = x > u.bbox.left + u.bbox.width * .85;
      const above = right || c.mode === "redisson"; // out of the way of its neighbours
      ctx.fillStyle = colour(c.mode);
      ctx.textAlign = right ? "right" : "left";
      ctx.fillText(figure(y) + "/s", x + (right ? -9 : 9) * devicePixelRatio, u.valToPos(y, "y", true) + (above ? -8 : 15) * devicePixelRatio);
    }));
    ctx.restore();
  }

  const floor = 0.6; // of the logarithmic axis: one call is to be seen
  let chosen;

  function times() {
    const rows = report.rows.filter(r => r.timeline_100ms);
    if (rows.length === 0) return;
    const section = document.getElementById("times"), choice = section.querySelector(".choice"), panels = section.querySelector(".panels");
    section.hidden = false;
    const locks = [...new Set(rows.map(r => r.locks))];
    chosen ??= locks.at(-1);
    choice.replaceChildren(...(locks.length < 2 ? [] : locks.map(n => {
      const b = el("button", "", whole(n) + " locks");
      b.setAttribute("aria-pressed", n === chosen);
      b.onclick = () => { chosen = n; draw(); };
      return b;
    })));
    panels.replaceChildren();
    const shown = rows.filter(r => r.locks === chosen);
    const top = Math.max(10, ...shown.flatMap(r => r.timeline_100ms)) * 1.5;
    const end = Math.max(...shown.map(r => r.timeline_100ms.length)) / 10;
    for (const r of shown) {
      const panel = el("div", "panel"), head = el("p"), box = el("div");
      const worst = Math.max(...report.rows.filter(o => o.mode === r.mode && o.locks === r.locks).map(o => o.peak_100ms));
      head.append(swatch(r.mode, r.mode + " "), el("span", "", ` ${figure(r.calls_per_s)} calls/s while measured, ${figure(worst)} in the worst 100 ms`));
      panel.append(head, box);
      panels.append(panel);
      const last = r === shown.at(-1);
      plot(box, {
        height: last ? 138 : 118,
        series: [{}, {fill: colour(r.mode), width: 0, points: {show: false}, fillTo: () => floor, paths: uPlot.paths.bars({size: [.9], align: 1})}],
        scales: {x: {time: false, range: [0, end]}, y: {distr: 3, range: [floor, top]}},
        axes: [axis({show: true, size: last ? 26 : 6, values: last ? (u, s) => s.map(v => v + " s") : () => []}), logarithmic({size: 48})],
        hooks: {draw: [u => events(u, r.events || [])]},
      }, [r.timeline_100ms.map((_, i) => i / 10), r.timeline_100ms.map(v => v >= floor ? v : null)]);
    }
  }

  function events(u, list) {
    const ctx = u.ctx, px = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("soft");
    ctx.font = `${11 * px}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.setLineDash([3 * px, 3 * px]);
    for (const e of list) {
      const x = u.valToPos(e.at_s, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, u.bbox.top);
      ctx.lineTo(x, u.bbox.top + u.bbox.height);
      ctx.stroke();
      ctx.fillText(e.what, x + 4 * px, u.bbox.top + 11 * px);
    }
    ctx.restore();
  }

  const costs = [
    ["Redis CPU, µs per renewed lock", r => r.renewals_per_s === 0 ? null : r.redis_cpu_us_per_renewal],
    ["Client CPU, µs per renewed lock", r => r.renewals_per_s === 0 ? null : r.client_cpu_us_per_renewal],
    ["Memory per lock, bytes of heap and stack", r => r.heap_bytes_per_lock + Math.max(r.stack_bytes_per_lock, 0)],
    ["Network, bytes a second in and out", r => r.renewals_per_s === 0 ? null : r.net_in_bytes_per_s + r.net_out_bytes_per_s],
    ["p99 of everybody else's commands, ms", r => r.foreground_p99_ms],
  ];

  function bars() {
    if (report.kind !== "compare") return;
    const section = document.getElementById("costs"), box = section.querySelector(".bars");
    section.hidden = false;
    box.replaceChildren();
    for (const [title, of] of costs) {
      const rows = report.rows.filter(r => of(r) !== null && of(r) !== undefined);
      if (rows.length === 0) continue;
      const group = el("div"), top = Math.max(...rows.map(of));
      group.append(el("h3", "", title));
      for (const n of new Set(rows.map(r => r.locks))) {
        group.append(el("p", "locks", whole(n) + " locks"));
        for (const r of rows.filter(r => r.locks === n)) {
          const bar = el("div", "bar"), track = el("span", "track"), fill = el("span", "fill");
          fill.style.width = Math.max(0, 100 * of(r) / top) + "%";
          fill.style.background = colour(r.mode);
          track.append(fill);
          bar.append(el("span", "", r.mode), track, el("span", "value", figure(of(r))));
          group.append(bar);
        }
      }
      box.append(group);
    }
  }

  function draw() {
    for (const [p] of plots) p.destroy();
    plots = [];
    rates();
    times();
    bars();
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    draw();
  });
})();
