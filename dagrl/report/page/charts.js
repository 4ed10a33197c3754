"use strict";
// Curves in SVG, drawn when they come into sight.

const CHART_HEIGHT = 170;
const MARGIN = { left: 46, right: 10, top: 8, bottom: 22 };

/** Metric names gathered into charts: `agent_a/x` and `agent_b/x` share one. Gives [{key, names: [[label, name]]}]. */
function families(names) {
  const found = new Map();
  for (const name of names) {
    const [key, label] = family(name);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push([label, name]);
  }
  return [...found].map(([key, members]) => ({ key, names: members }));
}

function family(name) {
  const patterns = [
    [/^agent_([^/]+)\/(.+)$/, (m) => [`agent/${m[2]}`, m[1]]],
    [/^critic_([^/]+)\/(.+)$/, (m) => [`critic/${m[2]}`, m[1]]],
    [/^(perf\/seconds)\/(.+)$/, (m) => [m[1], m[2]]],
    [/^(influence\/(?:kl|heard))\/(.+)$/, (m) => [m[1], m[2]]],
    [/^role\/(.+)\/([^/]+)$/, (m) => [`role/${m[2]}`, m[1]]],
    [/^(.*verdict\/[^/]+)\/([^/]+\/[^/]+)$/, (m) => [m[1], m[2]]],
    [/^(trajectory\/ended)\/(.+)$/, (m) => [m[1], m[2]]],
    [/^(reward\/parts)\/(.+)$/, (m) => [m[1], m[2]]],
    [/^(val\/without)\/(.+)\/([^/]+)$/, (m) => [`${m[1]}/${m[3]}`, m[2]]],
    [/^(val\/(?:[^/]+\/)?agent)_([^/]+)\/(.+)$/, (m) => [`${m[1]}/${m[3]}`, m[2]]],
    [/^(val\/(?:[^/]+\/)?round)_(\d+)\/accuracy$/, (m) => [m[1], m[2]]],
    [/^val\/([^/]+)\/(accuracy|accuracy_first_round|problems|failed|unknown|pass_at_k|maj_at_k)$/, (m) => [`val/set/${m[2]}`, m[1]]],
    [/^val\/(.+)\/reward$/, (m) => ["val/source", m[1]]],
  ];
  for (const [pattern, split] of patterns) {
    const match = pattern.exec(name);
    if (match) return split(match);
  }
  return [name, name];
}

/** Exponential moving average; `weight` 0 leaves the values as they are. */
function smoothed(values, weight) {
  let last = null;
  return values.map((value) => {
    if (value === null) return null;
    last = last === null ? value : weight * last + (1 - weight) * value;
    return last;
  });
}

function ticks(low, high, count) {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * span; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

const sight = "IntersectionObserver" in window
  ? new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { sight.unobserve(entry.target); entry.target.draw(); }
    }, { rootMargin: "400px" })
  : null;

const widths = new ResizeObserver((entries) => {
  for (const entry of entries) if (entry.target.drawnWidth && Math.abs(entry.target.drawnWidth - entry.target.clientWidth) > 2) entry.target.draw();
});

/** A card with a chart. `lines`: [{label, colour, dash, x, y, band: {x, low, high} or none, isThin}]; `guide` says what it means and where it is healthy. */
function chartCard(guide, lines, { smooth = 0, name = "" } = {}) {
  const plot = build("div", { class: "plot" });
  plot.draw = () => drawInto(plot, guide, lines, smooth);
  if (sight) sight.observe(plot); else queueMicrotask(plot.draw);
  widths.observe(plot);
  return build("figure", { class: "chart" },
    build("figcaption", {},
      build("div", { class: "chart-title" }, build("strong", {}, guide.title), health(guide, lines)),
      guide.meaning && build("p", {}, guide.meaning),
      guide.healthy && build("p", { class: "healthy" }, build("b", {}, "Healthy: "), guide.healthy)),
    plot,
    lines.length > 1 || lines[0].always ? legend(lines.filter((line) => !line.isThin)) : build("div", { class: "legend" }, build("span", { class: "mono faint" }, name), lastOf(lines[0])));
}

function legend(lines) {
  return build("div", { class: "legend" }, lines.map((line) => build("span", {},
    buildSvg("svg", { width: 18, height: 8, "aria-hidden": "true" }, stroke(buildSvg("path", { d: "M0 4 H18" }), line, 2.5)),
    line.label, " ", lastOf(line))));
}

const lastOf = (line) => build("b", {}, number(line.y.findLast((value) => value !== null)));

function stroke(path, line, width) {
  path.setAttribute("fill", "none");
  path.setAttribute("stroke-width", width);
  path.setAttribute("stroke-linejoin", "round");
  path.style.setProperty("stroke", line.colour);
  if (line.dash) path.setAttribute("stroke-dasharray", line.dash);
  return path;
}

/** Whether the last tenth of each line lies in the healthy range, where there is one. */
function health(guide, lines) {
  if (guide.low === null && guide.high === null) return null;
  const bad = lines.filter((line) => {
    const tail = line.y.filter((value) => value !== null).slice(-Math.max(1, Math.ceil(line.y.length / 10)));
    const mean = tail.reduce((sum, value) => sum + value, 0) / tail.length;
    return (guide.low !== null && mean < guide.low) || (guide.high !== null && mean > guide.high);
  });
  if (bad.length === 0) return pill("in range", "good");
  return pill("out of range", "bad", `${bad.map((line) => line.label).join(", ")}: the last values lie outside the healthy range`);
}

function drawInto(plot, guide, lines, smooth) {
  const width = plot.clientWidth;
  plot.drawnWidth = width;
  if (width === 0) return;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: CHART_HEIGHT - MARGIN.top - MARGIN.bottom };
  const [x, y] = scales(guide, lines, inner);
  const svg = buildSvg("svg", { width, height: CHART_HEIGHT, role: "img", "aria-label": described(guide, lines) });
  svg.append(...band(guide, y, inner), ...axes(x, y, inner));
  const shown = lines.map((line) => ({ ...line, drawn: smoothed(line.y, smooth) }));
  for (const { band: own, colour: fill } of shown) if (own) svg.append(confidence(own, fill, smooth, x, y));
  for (const line of shown) {
    if (line.isThin) { svg.append(faded(stroke(buildSvg("path", { d: pathOf(line.x, line.drawn, x, y) }), line, 1))); continue; }
    if (smooth > 0) svg.append(faded(stroke(buildSvg("path", { d: pathOf(line.x, line.y, x, y) }), line, 1)));
    svg.append(stroke(buildSvg("path", { d: pathOf(line.x, line.drawn, x, y) }), line, 2));
    if (line.x.length < 12) svg.append(...line.x.map((at, place) => line.drawn[place] === null ? null : dot(line, x(at), y(line.drawn[place]), 3)).filter(Boolean));
  }
  plot.replaceChildren(svg);
  followPointer(plot, svg, shown.filter((line) => !line.isThin), x, y, inner);
}

const described = (guide, lines) => `${guide.title}: ${lines.map((line) => `${line.label} ${number(line.y.findLast((v) => v !== null))}`).join(", ")}`;

/** The area between two lines. */
function confidence(band, fill, smooth, x, y) {
  const [low, high] = [smoothed(band.low, smooth), smoothed(band.high, smooth)];
  const upper = pathOf(band.x, high, x, y), lower = pathOf([...band.x].reverse(), [...low].reverse(), x, y);
  const area = buildSvg("path", { class: "confidence", d: `${upper}L${lower.slice(1)}Z` });
  area.style.setProperty("fill", fill);
  return area;
}

function faded(path) {
  path.setAttribute("opacity", "0.35");
  return path;
}

function dot(line, cx, cy, r) {
  const circle = buildSvg("circle", { cx, cy, r });
  circle.style.setProperty("fill", line.colour);
  return circle;
}

function scales(guide, lines, inner) {
  const xs = lines.flatMap((line) => [line.x[0], line.x[line.x.length - 1]]);
  let [left, right] = [Math.min(...xs), Math.max(...xs)];
  if (left === right) [left, right] = [left - 1, right + 1];
  let [low, high] = [Infinity, -Infinity];
  for (const line of lines) for (const value of line.y) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  for (const { band } of lines) if (band) [low, high] = [Math.min(low, ...band.low), Math.max(high, ...band.high)];
  if (low > high) [low, high] = [0, 1];
  if (low >= 0 && low < 0.4 * high) low = 0;
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.06;
  if (low !== 0) low -= room;
  high += room;
  const x = Object.assign((value) => MARGIN.left + ((value - left) / (right - left)) * inner.width, { low: left, high: right });
  const y = Object.assign((value) => MARGIN.top + ((high - value) / (high - low)) * inner.height, { low, high });
  return [x, y];
}

function band(guide, y, inner) {
  if (guide.low === null && guide.high === null) return [];
  const top = Math.max(MARGIN.top, guide.high === null ? MARGIN.top : y(guide.high));
  const bottom = Math.min(MARGIN.top + inner.height, guide.low === null ? MARGIN.top + inner.height : y(guide.low));
  if (bottom <= top) return [];
  return [buildSvg("rect", { class: "band", x: MARGIN.left, y: top, width: inner.width, height: bottom - top })];
}

function axes(x, y, inner) {
  const parts = [];
  for (const at of ticks(y.low, y.high, 4)) {
    parts.push(buildSvg("line", { class: "grid", x1: MARGIN.left, x2: MARGIN.left + inner.width, y1: y(at), y2: y(at) }),
      buildSvg("text", { class: "tick", x: MARGIN.left - 6, y: y(at) + 3.5, "text-anchor": "end" }, Math.abs(at) >= 1e4 || (at !== 0 && Math.abs(at) < 1e-3) ? number(at) : String(Number(at.toPrecision(6))).replace("-", "−")));
  }
  for (const at of ticks(x.low, x.high, Math.max(3, inner.width / 80))) {
    if (Number.isInteger(at)) parts.push(buildSvg("text", { class: "tick", x: x(at), y: CHART_HEIGHT - 6, "text-anchor": "middle" }, at));
  }
  return parts;
}

function pathOf(xs, ys, x, y) {
  let path = "", pen = "M";
  for (let place = 0; place < xs.length; place++) {
    if (ys[place] === null) { pen = "M"; continue; }
    path += `${pen}${x(xs[place]).toFixed(1)} ${y(ys[place]).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

function followPointer(plot, svg, lines, x, y, inner) {
  const cursor = buildSvg("g", { visibility: "hidden" });
  const tip = build("div", { class: "tip", hidden: true });
  svg.append(cursor);
  plot.append(tip);
  const leave = () => { cursor.setAttribute("visibility", "hidden"); tip.hidden = true; };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const step = x.low + ((at - MARGIN.left) / inner.width) * (x.high - x.low);
    const near = lines.map((line) => [line, nearest(line, step)]).filter(([, place]) => place !== null);
    if (near.length === 0 || at < MARGIN.left - 8) { leave(); return; }
    const chosen = near.reduce((best, one) => Math.abs(one[0].x[one[1]] - step) < Math.abs(best[0].x[best[1]] - step) ? one : best);
    const here = chosen[0].x[chosen[1]];
    const shown = near.filter(([line, place]) => Math.abs(line.x[place] - here) < 0.5);
    cursor.replaceChildren(buildSvg("line", { class: "cursor", x1: x(here), x2: x(here), y1: MARGIN.top, y2: MARGIN.top + inner.height }),
      ...shown.map(([line, place]) => dot(line, x(here), y(line.drawn[place]), 3.5)));
    cursor.setAttribute("visibility", "visible");
    tip.replaceChildren(build("div", { class: "faint" }, `step ${here}`), ...shown.map(([line, place]) =>
      build("div", {}, build("i", { class: "swatch", style: { background: line.colour } }), line.label, " ", build("b", {}, number(line.y[place])))));
    tip.hidden = false;
    tip.style.left = `${Math.min(Math.max(4, x(here) + (x(here) > plot.clientWidth / 2 ? -tip.offsetWidth - 10 : 10)), plot.clientWidth - tip.offsetWidth)}px`;
  });
}

/** Place of the value nearest to a step. */
function nearest(line, step) {
  let best = null;
  for (let place = 0; place < line.x.length; place++) {
    if (line.y[place] === null) continue;
    if (best === null || Math.abs(line.x[place] - step) < Math.abs(line.x[best] - step)) best = place;
  }
  return best;
}

/** A small curve without axes. */
function spark(points, lineColour, width = 120, height = 32) {
  const svg = buildSvg("svg", { width, height, class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const values = points ? points.y.filter((value) => value !== null) : [];
  if (values.length < 2) return svg;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points.x[0], points.x[points.x.length - 1]];
  const x = (value) => 2 + ((value - first) / (last - first || 1)) * (width - 4);
  const y = (value) => 3 + ((high - value) / (high - low || 1)) * (height - 6);
  svg.append(stroke(buildSvg("path", { d: pathOf(points.x, points.y, x, y) }), { colour: lineColour }, 1.8));
  return svg;
}
