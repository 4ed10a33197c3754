"use strict";
// The workflow's graph: a column per agent, play above learn; on it who ran in a step, and for how long.

const BOX = { height: 54, row: 92, gap: 22, pad: 16, head: 40, bandHead: 26 };
/** A drawing is made smaller down to this before it is laid out anew. */
const LEAST_SCALE = 0.72;
const KINDS = { ROLLOUT: 0, ENV: 2, REWARD: 3, OLD_LOGPROBS: 7, REF_LOGPROBS: 7, VALUES: 4, ADVANTAGES: 5, TRAIN_CRITIC: 4, TRAIN_ACTOR: 0, COMPUTE: 6, CREDIT: 5 };

/** The drawing; `times` of the step shown, `onpick(box)` when a node is chosen, `room` its width in
 *  pixels: where too little, what stands abreast is stacked. `doing`: what runs now, or null. */
function graphDrawing(graph, times, { onpick, room, doing }) {
  const wide = laidOut(graph, false);
  const sheet = wide.width * LEAST_SCALE <= room ? wide : laidOut(graph, true);
  const svg = buildSvg("svg", { class: `graph${sheet === wide ? " fits" : ""}`, viewBox: `0 0 ${sheet.width} ${sheet.height}`, width: sheet.width, height: sheet.height, role: "group", "aria-label": `graph of ${graph.title}` },
    buildSvg("defs", {}, arrowHead("arrow-data", "line"), arrowHead("arrow-idle", "idle")));
  for (const part of sheet.bands) svg.append(...bandParts(graph, sheet, part));
  const edges = graph.edges.map((edge) => edgePath(edge, sheet));
  const longest = Math.max(1, ...Object.values(times.nodes).filter((ms) => ms !== null));
  svg.append(...edges, ...sheet.bands.map((part) => bandName(sheet, part)), ...graph.boxes.map((box) => boxParts(box, sheet.placed.get(box.id), times, longest, { onpick: () => onpick(box), onlight: (id) => light(svg, edges, id), since: runningSince(box, doing) })));
  return svg;
}

function laidOut(graph, isNarrow) {
  const width = (box) => Math.max(box.half === "play" ? 176 : 150, 26 + box.label.length * 7.4, 26 + box.text.length * 6.1);
  const rows = new Map();
  for (const box of graph.boxes) {
    const key = `${box.half} ${box.layer} ${box.lane}`;
    if (!rows.has(key)) rows.set(key, []);
    rows.get(key).push(box);
  }
  const lanes = graph.lanes.map((name, lane) => {
    const own = [...rows.values()].filter((row) => row[0].lane === lane);
    const widest = own.map((row) => isNarrow ? Math.max(...row.map(width)) : row.reduce((sum, box) => sum + width(box) + BOX.gap, -BOX.gap));
    return { name, width: Math.max(name.length * 7.6, ...widest, 0) + 2 * BOX.pad };
  });
  let x = 0;
  for (const lane of lanes) { lane.x = x; x += lane.width + BOX.gap; }
  const placed = new Map(), bands = [];
  let y = BOX.head;
  for (const half of ["play", "learn"]) {
    const boxes = graph.boxes.filter((box) => box.half === half);
    if (boxes.length === 0) continue;
    const top = y;
    y += BOX.bandHead;
    const layers = 1 + Math.max(...boxes.map((box) => box.layer));
    for (let layer = 0; layer < layers; layer++) {
      let tallest = 1;
      lanes.forEach((lane, index) => {
        const row = rows.get(`${half} ${layer} ${index}`) || [];
        if (isNarrow) tallest = Math.max(tallest, row.length);
        let at = lane.x + (lane.width - (isNarrow ? 0 : row.reduce((sum, box) => sum + width(box) + BOX.gap, -BOX.gap))) / 2;
        row.forEach((box, place) => {
          const own = width(box);
          placed.set(box.id, isNarrow ? { x: at - own / 2, y: y + place * (BOX.height + 12), width: own } : { x: at, y, width: own });
          at += isNarrow ? 0 : own + BOX.gap;
        });
      });
      y += BOX.row + (tallest - 1) * (BOX.height + 12);
    }
    bands.push({ half, top, height: y - top - (BOX.row - BOX.height) + 14 });
    y += 4;
  }
  return { lanes, placed, bands, isNarrow, width: x - BOX.gap, height: y - 14 };
}

function arrowHead(id, kind) {
  return buildSvg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", class: `head ${kind}` },
    buildSvg("path", { d: "M0 0.5 L7.5 4 L0 7.5 z" }));
}

function bandParts(graph, sheet, part) {
  const parts = sheet.lanes.map((lane) => buildSvg("rect", { class: `lane ${part.half}`, x: lane.x, y: part.top, width: lane.width, height: part.height, rx: 12 }));
  if (part === sheet.bands[0]) parts.push(...sheet.lanes.map((lane) => buildSvg("text", { class: "lane-name", x: lane.x + lane.width / 2, y: BOX.head - 14, "text-anchor": "middle" }, lane.name)));
  return parts;
}

const bandName = (sheet, part) => buildSvg("text", { class: "band-name", x: sheet.lanes[0].x + 12, y: part.top + 18 }, part.half === "play" ? "PLAY · once a round" : "LEARN · once a step");

function edgePath(edge, sheet) {
  const before = sheet.placed.get(edge.from), after = sheet.placed.get(edge.to);
  const from = [before.x + before.width / 2, before.y + BOX.height], to = [after.x + after.width / 2, after.y - 2];
  const isSameLane = Math.abs(from[0] - to[0]) < 1;
  const skips = (to[1] - from[1]) / BOX.row > 1.2 && isSameLane;
  const bend = skips ? (before.width / 2 + 14) * (from[0] <= sheet.width / 2 ? 1 : -1) : 0;
  const pull = Math.max(22, Math.min(64, (to[1] - from[1]) / 2));
  const [start, end] = [[before.x + before.width, before.y + BOX.height / 2], [after.x + after.width + 2, after.y + BOX.height / 2]];
  const side = Math.max(start[0], end[0]) + 16;
  const around = `M${start[0]} ${start[1]} C${side} ${start[1]} ${side} ${end[1]} ${end[0]} ${end[1]}`;
  const down = `M${from[0]} ${from[1]} C${from[0] + bend} ${from[1] + pull} ${to[0] + bend} ${to[1] - pull} ${to[0]} ${to[1]}`;
  return buildSvg("path", { class: `edge ${edge.data ? "line" : "idle"}`, "data-from": edge.from, "data-to": edge.to, "marker-end": `url(#arrow-${edge.data ? "data" : "idle"})`,
    d: sheet.isNarrow && isSameLane ? around : down },
    buildSvg("title", {}, `${edge.from} → ${edge.to}${edge.data ? "" : " (carries nothing)"}`));
}

/** What is known of a node's time in a step: [text, milliseconds or null, whether it ran]. */
function timeOf(box, times) {
  const spoke = times.spoke[box.id];
  if (box.half === "play" && spoke) return [`${spoke.turns} turns · ${milliseconds(spoke.ms_per_turn)} each`, null, true];
  const ms = times.nodes[box.id];
  if (ms === undefined || ms === null) return [box.half === "play" ? "" : "not in this step", null, false];
  return [milliseconds(ms), ms, true];
}

/** When the node, or its environment, began what it is doing now; null where it rests. */
function runningSince(box, doing) {
  const ids = [box.id, `${box.id}@env`];
  const found = Object.entries((doing || { nodes: {} }).nodes).filter(([id]) => ids.includes(id)).map(([, since]) => since);
  return found.length === 0 ? null : Math.min(...found);
}

function boxParts(box, place, times, longest, { onpick, onlight, since }) {
  const [known, ms, ran] = timeOf(box, times);
  const isRunning = since !== null;
  const text = isRunning ? `▶ ${known && known !== "not in this step" ? known : "running"}` : known;
  const group = buildSvg("g", { class: `box${isRunning ? " running" : ""}${ran || isRunning ? " ran" : " rests"}${box.kind.startsWith("TRAIN") ? " train" : ""}`, transform: `translate(${place.x} ${place.y})`, tabindex: 0, role: "button", "aria-label": `${box.label}: ${box.text}, ${text}`,
    onclick: onpick, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onpick(); } },
    onpointerenter: () => onlight(box.id), onpointerleave: () => onlight(null), onfocus: () => onlight(box.id), onblur: () => onlight(null) },
    buildSvg("rect", { width: place.width, height: BOX.height, rx: 9 }),
    buildSvg("text", { class: "name", x: place.width / 2, y: 18, "text-anchor": "middle" }, box.label),
    buildSvg("text", { class: "kind", x: place.width / 2, y: 33, "text-anchor": "middle" }, box.text),
    buildSvg("text", { class: "ms", x: place.width / 2, y: 47, "text-anchor": "middle" }, text));
  group.style.setProperty("--own", colour(KINDS[box.kind] ?? 7));
  if (ms !== null) group.append(buildSvg("rect", { class: "bar", x: 0, y: BOX.height - 3, width: Math.max(3, (ms / longest) * place.width), height: 3, rx: 1.5 }));
  return group;
}

function light(svg, edges, id) {
  svg.classList.toggle("lit", id !== null);
  for (const edge of edges) edge.classList.toggle("on", id !== null && (edge.dataset.from === id || edge.dataset.to === id));
}

/** All nodes with their times as bars, longest first. */
function timeTable(graph, times, onpick) {
  const label = Object.fromEntries(graph.boxes.map((box) => [box.id, box.label]));
  const rows = Object.entries(times.nodes).filter(([, ms]) => ms !== null).sort((a, b) => b[1] - a[1]);
  const total = times.total_ms || rows.reduce((sum, [, ms]) => sum + ms, 0);
  return build("div", { class: "bars" }, rows.map(([id, ms]) => build("button", { type: "button", class: "bar-row", onclick: () => onpick(graph.boxes.find((box) => box.id === id) || { id, label: id, text: "", kind: "ROLLOUT", half: "play" }) },
    build("span", { class: "mono" }, id === "play" ? "play (all agents speaking)" : label[id] || id),
    build("span", { class: "bar-track" }, build("i", { style: { width: `${Math.max(0.5, (100 * ms) / total)}%` } })),
    build("b", {}, milliseconds(ms)), build("span", { class: "faint" }, `${((100 * ms) / total).toFixed(ms / total < 0.095 ? 1 : 0)} %`))));
}
