"use strict";
(() => {
  const root = document.documentElement;
  const colour = name => getComputedStyle(root).getPropertyValue(name).trim();
  const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
  const short = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});
  const shown = value => value == null ? "–" : Math.abs(value) >= 100 ? whole.format(value) : short.format(value);
  const MIB = 1048576;
  let charts = [], data = null;

  const line = (name, key, n, more) => ({name, key, n, scale: 1, ...more});
  /* What each chart shows; `many`: only where a point stands for more than one batch. */
  const CHARTS = {
    throughput: {unit: "records/s", lines: [
      line("records/s", "records_per_s", "main"),
      line("slowest batch of the point", "least_records_per_s", 4, {many: true, thin: true}),
      line("fastest", "most_records_per_s", 1, {many: true, thin: true})]},
    time: {unit: "seconds", stacked: true, lines: [line("slowest batch of the point", "slowest_s", 4, {many: true, thin: true})]},
    latency: {unit: "ms", lines: [
      line("p50", "p50_ms", 1), line("p99", "p99_ms", 2), line("longest", "max_ms", 4, {thin: true})]},
    bytes: {unit: "MiB/s", lines: [
      line("MiB/s", "bytes_per_s", "main", {scale: 1 / MIB}),
      line("slowest batch of the point", "least_bytes_per_s", 4, {many: true, thin: true, scale: 1 / MIB}),
      line("fastest", "most_bytes_per_s", 1, {many: true, thin: true, scale: 1 / MIB})]},
    rate: {unit: "%", lines: [line("size after compression", "rate", 11, {scale: 100})]},
  };
  const MARKS = [["aborted", "A", "--bad", "aborted"], ["errors", "E", "--bad", "records refused"], ["dead", "D", "--bad", "dead letters"],
    ["attempts", "F", "--bad", "task attempts failed"], ["retries", "R", "--slow", "records sent again"],
    ["throttle_ms", "T", "--slow", "ms of pauses for quotas"]];

  const time = ms => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
  const queryOf = i => data.queries[data.points.query[i]] || "";
  const named = i => {
    const p = data.points, first = p.first[i], last = p.last[i];
    return (first === last ? "batch " + first : "batches " + first + "–" + last) + (queryOf(i) && " of " + queryOf(i));
  };
  const troubles = i => MARKS.filter(([key]) => data.points[key][i] > 0)
    .map(([key, , , words]) => shown(data.points[key][i]) + " " + words);

  /* Marks of what is rare: in at most 5 points, or a tenth of them. What is frequent would bury the curves. */
  const rare = () => MARKS.filter(([key]) => often(key) <= Math.max(5, data.points.first.length / 10));
  const often = key => data.points[key].filter(v => v > 0).length;
  const tellFrequent = () => {
    const kept = rare(), left = MARKS.filter(one => !kept.includes(one));
    document.getElementById("unmarked").textContent = left.length ? "Not marked, because frequent: "
      + left.map(([key, , , words]) => `${words.replace(/^ms of /, "")} (${often(key)} of ${data.points.first.length} points)`).join(", ") + "." : "";
  };

  /* Letters and dashed lines where something went wrong, in every chart alike. */
  const marks = u => {
    const {ctx, bbox} = u, ratio = devicePixelRatio;
    const shownMarks = rare();
    let free = -1e9;
    ctx.save();
    ctx.font = `bold ${11 * ratio}px sans-serif`;
    ctx.textAlign = "center";
    for (let i = 0; i < u.data[0].length; i++) {
      const found = shownMarks.filter(([key]) => data.points[key][i] > 0);
      const x = found.length ? u.valToPos(i, "x", true) : 0;
      if (!found.length || x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(found[0][2]);
      ctx.globalAlpha = 0.35;
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.globalAlpha = 1;
      const letters = found.map(([, letter]) => letter).join("");
      const half = ctx.measureText(letters).width / 2;
      if (x - half > free + 2 * ratio) { ctx.fillText(letters, x, bbox.top - 5 * ratio); free = x + half; }
    }
    ctx.restore();
  };

  const series = spec => {
    const p = data.points, isMany = data.lines > p.first.length;
    const lines = spec.lines.filter(one => !one.many || isMany).map(one => ({
      ...one, raw: p[one.key].map(v => v == null ? null : v * one.scale), bars: false}));
    if (!spec.stacked) return lines;
    let sum = p.first.map(() => 0);
    const bars = data.parts.map((name, n) => {
      const raw = p["part_" + n];
      sum = sum.map((s, i) => s + (raw[i] || 0));
      return {name, n, raw, drawn: sum, bars: true};
    }).filter(one => one.raw.some(v => v > 0));
    return [...bars.reverse(), ...lines];
  };

  const axis = label => ({label, stroke: colour("--ink"), labelSize: 18,
    size: (u, values) => 20 + 7 * Math.max(...(values || []).map(one => one.length), 3),
    grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line"), width: 1}, labelFont: "12px sans-serif", font: "12px sans-serif"});

  const draw = (name, spec) => {
    const figure = document.getElementById(name), place = figure.querySelector(".chart");
    const lines = series(spec), count = data.points.first.length;
    const bars = uPlot.paths.bars({size: [0.8, 60], gap: 0});
    const readout = figure.querySelector(".readout");
    const options = {
      width: Math.max(place.clientWidth, 280), height: place.clientWidth < 600 ? 240 : 280,
      padding: [18, 12, 0, 0],
      scales: {x: {time: false, range: (u, low, high) => count === 1 ? [-0.5, 0.5] : [low - 0.5, high + 0.5]},
        y: {range: (u, low, high) => [0, high > 0 ? high * 1.05 : 1]}},
      cursor: {sync: {key: "batches", setSeries: false}, drag: {x: true, y: false}},
      axes: [{...axis(""), ...(Object.keys(data.queries).length ? {size: 50, space: 100} : {size: 34}), labelSize: 0, incrs: [1, 2, 5, 10, 20, 50, 100, 200],
          values: (u, at) => at.map(i => Number.isInteger(i) && i >= 0 && i < count ? shownBatch(i) : "")},
        {...axis(spec.unit), values: (u, at) => at.map(shown)}],
      series: [{label: "batch", value: (u, i) => i == null ? "–" : named(i) + ", " + time(data.points.time_ms[i])},
        ...lines.map(one => ({label: one.name, stroke: colour("--c" + one.n), width: one.thin ? 1 : 2,
          dash: one.thin ? [4, 3] : undefined, fill: one.bars ? colour("--c" + one.n) : undefined,
          paths: one.bars ? bars : undefined, points: {show: !one.bars && count < 60},
          value: (u, v, s, i) => i == null ? "–" : shown(one.raw[i])}))],
      hooks: {draw: [marks], setCursor: [u => {
        const i = u.cursor.idx, found = i == null ? [] : troubles(i);
        readout.textContent = i == null ? "" : found.join(", ");
      }]},
    };
    place.textContent = "";
    const table = [data.points.first.map((_, i) => i), ...lines.map(one => one.drawn || one.raw)];
    const chart = new uPlot(options, table, place);
    place.setAttribute("aria-label", figure.querySelector("figcaption").textContent + " " + extremes(lines, spec.unit)
      + " Arrow keys tell the figures of one batch after the other.");
    charts.push(chart);
    place.onkeydown = event => {
      const step = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -count, End: count}[event.key];
      if (!step) return;
      event.preventDefault();
      const i = Math.min(Math.max((chart.cursor.idx ?? (step > 0 ? -1 : count)) + step, 0), count - 1);
      chart.setCursor({left: chart.valToPos(i, "x"), top: 20});
      const told = lines.filter(one => !one.bars || one.raw[i] > 0);
      readout.textContent = [named(i), ...told.map(one => one.name + " " + shown(one.raw[i])), ...troubles(i)].join(", ");
    };
    asTable(figure, lines);
  };
  const shownBatch = i => {
    const query = queryOf(i);
    return data.points.first[i] + (query && "\n" + (query.length > 14 ? query.slice(0, 13) + "…" : query));
  };
  const extremes = (lines, unit) => lines.map(one => {
    const known = one.raw.filter(v => v != null);
    return known.length ? `${one.name}: ${shown(Math.min(...known))} to ${shown(Math.max(...known))} ${unit}.` : "";
  }).join(" ");

  const element = (tag, text, parent) => {
    const made = document.createElement(tag);
    made.textContent = text;
    parent.append(made);
    return made;
  };
  const asTable = (figure, lines) => {
    const details = figure.querySelector(".as-table");
    details.ontoggle = () => {
      if (!details.open || details.querySelector("table")) return;
      const place = element("div", "", details);
      place.className = "wide"; place.tabIndex = 0;
      const table = element("table", "", place);
      element("caption", figure.querySelector("figcaption").textContent, table);
      const head = element("tr", "", element("thead", "", table)), body = element("tbody", "", table);
      for (const name of ["batches", "written, UTC", ...lines.map(one => one.name), "trouble"]) element("th", name, head).scope = "col";
      data.points.first.forEach((_, i) => {
        const row = element("tr", "", body);
        element("th", named(i), row).scope = "row";
        element("td", time(data.points.time_ms[i]), row);
        for (const one of lines) element("td", shown(one.raw[i]), row).className = "n";
        element("td", troubles(i).join(", "), row);
      });
    };
  };

  /* Sorting: a press sorts by a column, the next one the other way round. */
  const sorted = {};
  const key = cell => cell.dataset.order === undefined ? cell.textContent : Number(cell.dataset.order);
  const sort = (table, at, way) => {
    sorted[table.id] = [at, way];
    [...table.tHead.rows[0].cells].forEach((cell, n) => cell.setAttribute("aria-sort", n === at ? way : "none"));
    const rows = [...table.tBodies[0].rows], sign = way === "ascending" ? 1 : -1;
    rows.sort((one, other) => {
      const a = key(one.cells[at]), b = key(other.cells[at]);
      return sign * (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
    });
    table.tBodies[0].append(...rows);
  };
  const sortable = table => {
    [...table.tHead.rows[0].cells].forEach((cell, at) => {
      const title = cell.textContent;
      cell.textContent = "";
      const button = element("button", title, cell);
      button.type = "button";
      cell.setAttribute("aria-sort", "none");
      const isNumber = () => table.tBodies[0].rows[0]?.cells[at].dataset.order !== undefined;
      button.onclick = () => {
        const is = cell.getAttribute("aria-sort");
        sort(table, at, is === "none" ? (isNumber() ? "descending" : "ascending") : is === "ascending" ? "descending" : "ascending");
      };
    });
    if (sorted[table.id]) sort(table, ...sorted[table.id]);
  };

  const redraw = () => {
    for (const chart of charts) chart.destroy();
    charts = [];
    if (data && data.points.first) tellFrequent();
    if (data && data.points.first) for (const [name, spec] of Object.entries(CHARTS)) draw(name, spec);
  };
  const start = () => {
    const found = document.getElementById("data");
    data = found ? JSON.parse(found.textContent) : null;
    document.querySelectorAll("table.sortable").forEach(sortable);
    redraw();
  };
  start();

  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  /* On paper nothing can be unfolded. */
  let unfolded = [];
  addEventListener("beforeprint", () => {
    root.classList.add("print");
    unfolded = [...document.querySelectorAll("#outliers details:not([open]), section > .others:not([open])")];
    for (const one of unfolded) one.open = true;
    redraw();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("print");
    for (const one of unfolded) one.open = false;
    redraw();
  });

  /* What the reader has unfolded, and where the focus is: found again in a page that was updated. */
  const placeOf = one => {
    const within = one.querySelector("table[id]") ?? one.closest("[id]"), row = one.closest("tr, li");
    return [within?.id, row?.querySelector("th, b")?.textContent, one.tagName, one.matches("button") ? one.textContent : ""].join("|");
  };
  const FOCUSED = ".chart, summary, th > button, .wide";
  const kept = () => {
    const open = [...document.querySelectorAll("details[open]")].map(one => placeOf(one.firstElementChild));
    const active = document.activeElement?.matches(FOCUSED) ? placeOf(document.activeElement) : null;
    return () => {
      for (const one of document.querySelectorAll("summary")) if (open.includes(placeOf(one))) one.parentElement.open = true;
      if (active) [...document.querySelectorAll(FOCUSED)].find(one => placeOf(one) === active)?.focus({preventScroll: true});
    };
  };

  /* A page that goes on updating: its server has a number that grows with every line. */
  if (root.dataset.version !== undefined) {
    const state = document.getElementById("state");
    const look = async () => {
      try {
        const version = await (await fetch("version", {cache: "no-store"})).text();
        if (version !== root.dataset.version) {
          const page = new DOMParser().parseFromString(await (await fetch("./", {cache: "no-store"})).text(), "text/html");
          const restore = kept();
          root.dataset.version = page.documentElement.dataset.version;
          document.title = page.title;
          for (const part of ["h1", "#main", "footer"]) document.querySelector(part).replaceWith(page.querySelector(part));
          start();
          restore();
        }
        state.textContent = "Goes on updating.";
      } catch {
        state.textContent = "Stopped: the command that serves this page has ended. The figures stay.";
      }
      setTimeout(look, 2000);
    };
    look();
  }
})();
