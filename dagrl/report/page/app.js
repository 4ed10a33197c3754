"use strict";
// Places of the page (in the address after #) and what stands there.

const TABS = [["curves", "Curves"], ["graph", "Graph"], ["talk", "Conversations"], ["config", "Configuration"]];
const POLL_MS = 3000;
const main = document.getElementById("main");
const remembered = { smooth: 0, measure: "advantages", defaults: false };
/** What the page was last drawn for; an answer that comes for another place is thrown away. */
let visit = 0;

// Places

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, params: Object.fromEntries(new URLSearchParams(query || "")) };
}

function address(parts, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined)).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

const go = (parts, params) => { location.hash = address(parts, params); };

async function show({ isRefresh = false } = {}) {
  const own = ++visit;
  const { parts, params } = place();
  const [view, name, tab] = parts;
  const scroll = window.scrollY;
  try {
    const page = view === "run" ? await runPage(name, tab || "curves", params) : view === "compare" ? await comparePage(params) : await listPage();
    if (own !== visit) return;
    main.replaceChildren(...page.filter(Boolean));
  } catch (error) {
    if (own !== visit) return;
    if (!isRefresh) main.replaceChildren(build("nav", { class: "crumbs" }, build("a", { href: "#/" }, "Runs")), fault(error));
  }
  window.scrollTo(0, isRefresh ? scroll : 0);
}

// Top line

function topLine() {
  const themes = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" };
  const kept = stored("theme") || "auto";
  document.documentElement.dataset.theme = kept;
  const button = build("button", { type: "button", class: "plain", title: "light or dark", onclick: () => {
    const names = Object.keys(themes);
    store("theme", names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
    topLine();
  } }, themes[kept]);
  document.getElementById("top").replaceChildren(...[
    build("a", { class: "brand", href: "#/" }, logo(), "dagrl"),
    embedded !== null && pill("report", "neutral", "a file of its own; nothing is loaded"),
    build("span", { class: "spring" }), button].filter(Boolean));
}

function logo() {
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 2 };
  return buildSvg("svg", { viewBox: "0 0 24 24", width: 22, height: 22, "aria-hidden": "true" },
    buildSvg("path", { d: "M6 6 L18 6 M6 6 L12 18 M18 6 L12 18", ...line }),
    ...[[6, 6], [18, 6], [12, 18]].map(([cx, cy]) => buildSvg("circle", { cx, cy, r: 3.6, fill: "currentColor" })));
}

function stored(key) {
  try { return localStorage.getItem(`dagrl-${key}`); } catch { return null; }
}

function store(key, value) {
  try { localStorage.setItem(`dagrl-${key}`, value); } catch { document.documentElement.dataset.theme = value; }
}

// List of runs

async function listPage() {
  document.title = "dagrl";
  const { runs, roots, now } = await ask("runs");
  if (runs.length === 0) return [empty("No runs yet", `Nothing in ${roots.join(", ")}. This page shows a run as soon as one starts: dagrl run --workflow workflows/marft.yaml`)];
  const chosen = new Set(JSON.parse(stored("chosen") || "[]").filter((name) => runs.some((run) => run.name === name)));
  const button = build("button", { type: "button", class: "primary", onclick: () => go(["compare"], { runs: [...chosen].join(",") }) }, "");
  const told = () => { button.disabled = chosen.size < 2; button.textContent = chosen.size < 2 ? "Choose runs to compare" : `Compare ${chosen.size} runs`; };
  const pick = (name, isOn) => { if (isOn) chosen.add(name); else chosen.delete(name); store("chosen", JSON.stringify([...chosen])); told(); };
  told();
  return [build("div", { class: "page-head" }, build("div", {}, build("h1", {}, "Runs"), build("p", { class: "faint" }, `${runs.length} in ${roots.join(", ")}`)), build("span", { class: "spring" }), runs.length > 1 && button),
    build("div", { class: "runs" }, runs.map((run) => runCard(run, now, chosen.has(run.name), pick)))];
}

function runCard(run, now, isChosen, pick) {
  const { headline } = run;
  return build("div", { class: "run-card" },
    build("input", { type: "checkbox", "aria-label": `compare ${run.name}`, checked: isChosen, onchange: (event) => pick(run.name, event.target.checked) }),
    build("a", { href: address(["run", run.name]), class: "run-link" },
      build("span", { class: "run-name" }, build("strong", { class: "mono" }, run.name), statePill(run)),
      build("span", { class: "faint clip" }, run.fault || run.description),
      build("span", { class: "faint" }, stepText(run), run.state === "running" && run.doing && ` · ${doingText({ ...run, now })}`, run.seed !== null && run.seed !== undefined && ` · seed ${run.seed}`, run.heartbeat && ` · ${ago(now - run.heartbeat)}`)),
    spark(headline && headline.spark, "var(--c0)"),
    build("div", { class: "run-value" }, headline && build("strong", {}, number(headline.value)), headline && build("span", { class: "faint" }, headline.title)));
}

const stepText = (run) => run.total_steps ? `step ${run.step} of ${run.total_steps}` : `step ${run.step}`;

function statePill(run) {
  const kinds = { running: "live", done: "good", interrupted: "neutral", failed: "bad", dead: "bad", broken: "bad" };
  const titles = { dead: "status.json says running, but its process is gone" };
  return pill(run.state, kinds[run.state] || "neutral", titles[run.state]);
}

// One run

async function runPage(name, tab, params) {
  const run = await ask("run", { run: name });
  document.title = `${name} · dagrl`;
  const body = { curves: curvesTab, graph: graphTab, talk: talkTab, task: taskTab, config: configTab }[tab] || curvesTab;
  return [runHead(run, tab), ...(await body(run, params))];
}

function runHead(run, tab) {
  const share = run.total_steps ? Math.min(1, run.step / run.total_steps) : null;
  return build("div", { class: "run-head" },
    build("nav", { class: "crumbs" }, build("a", { href: "#/" }, "Runs"), " / ", build("span", { class: "mono" }, run.name)),
    build("div", { class: "page-head" }, build("h1", {}, run.name.split("/")[0]), statePill(run),
      build("span", { class: "faint" }, stepText(run), run.heartbeat && embedded === null ? ` · last sign of life ${ago(run.now - run.heartbeat)}` : ""),
      run.failures > 0 && pill(`${run.failures} failed trajectories kept`, "bad")),
    run.description && build("p", { class: "faint" }, run.description),
    run.fault && build("p", { class: "fault" }, run.fault),
    share !== null && build("div", { class: "progress", role: "progressbar", "aria-valuenow": run.step, "aria-valuemax": run.total_steps, "aria-label": "steps done" }, build("i", { style: { width: `${100 * share}%` } })),
    build("nav", { class: "tabs" }, TABS.map(([key, title]) => build("a", { href: address(["run", run.name, key]), "aria-current": (key === tab || (key === "talk" && tab === "task")) && "page" }, title))));
}

async function curvesTab(run) {
  const told = await curvesOf(run.name);
  return curveSections(told.guide, (one) => linesOf(one, told, run.agents));
}

async function curvesOf(name) {
  return { name, ...(await ask("curves", { run: name })) };
}

const SECTIONS = ["Does it learn?", "Policy", "Critic and advantages", "Conversations", "Time", "Everything else"];

/** Charts of all metrics of `guides`; `linesFor` gives the lines of a family. */
function curveSections(guides, linesFor) {
  const names = Object.keys(guides).sort((a, b) => guides[a].rank - guides[b].rank);
  if (names.length === 0) return [empty("No numbers yet", "The first row of metrics.jsonl comes with the end of the first step.")];
  const holder = build("div", {});
  const search = build("input", { type: "search", placeholder: "find a metric", "aria-label": "find a metric", oninput: () => draw() });
  const smooth = build("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: remembered.smooth, "aria-label": "smoothing", oninput: () => { remembered.smooth = Number(smooth.value); draw(); } });
  const draw = () => holder.replaceChildren(...SECTIONS.map((section) => {
    const cards = families(names.filter((name) => guides[name].section === section && matches(name, guides[name], search.value)))
      .map((one) => chartCard(titled(one, guides), linesFor(one), { smooth: remembered.smooth, name: one.names[0][1] }));
    return cards.length > 0 && build("details", { class: "charts-section", open: section !== "Everything else" || search.value !== "" }, build("summary", {}, build("h2", {}, section), build("span", { class: "faint" }, cards.length)), build("div", { class: "charts" }, cards));
  }).filter(Boolean));
  draw();
  return [build("div", { class: "controls" }, search, labelled("Smooth", smooth)), holder];
}

function matches(name, guide, text) {
  return text === "" || `${name} ${guide.title}`.toLowerCase().includes(text.toLowerCase());
}

function titled(one, guides) {
  const guide = guides[one.names[0][1]];
  return guide.known ? guide : { ...guide, title: one.key };
}

function linesOf(one, told, agents) {
  return one.names.map(([label, name], position) => {
    const seat = agents.includes(label) ? agents.indexOf(label) : position;
    return { label, colour: colour(seat), ...told.series[name] };
  });
}

// Graph

async function graphTab(run, params) {
  const graph = await ask("graph", { run: run.name });
  if (graph.fault) return [build("pre", { class: "fault" }, graph.fault)];
  const curves = await curvesOf(run.name);
  const steps = (curves.series["perf/seconds_per_step"] || { x: [] }).x;
  const step = params.step ? Number(params.step) : steps[steps.length - 1] ?? 0;
  const holder = build("div", { class: "graph-wrap" }), bars = build("div", {}), panel = build("div", {}), told = build("b", {});
  const pick = (box) => panel.replaceChildren(nodePanel(box, curves));
  const draw = async (at) => {
    const times = embedded === null || at === step ? await ask("times", { run: run.name, step: at }) : timesFrom(curves, at);
    told.textContent = `step ${at}${times.total_ms ? ` · ${milliseconds(times.total_ms)}` : ""}`;
    const doing = run.state === "running" && (steps.length === 0 || at === steps[steps.length - 1]) ? run.doing : null;
    holder.replaceChildren(graphDrawing(graph, times, { onpick: pick, room: main.clientWidth - 60, doing }));
    bars.replaceChildren(timeTable(graph, times, pick));
  };
  await draw(step);
  const slider = build("input", { type: "range", min: 0, max: Math.max(0, steps.length - 1), value: Math.max(0, steps.indexOf(step)), "aria-label": "step", oninput: () => draw(steps[Number(slider.value)]) });
  return [build("div", { class: "controls" }, steps.length > 1 && labelled("Step", slider), told, run.state === "running" && pill(doingText(run) || "live", "live")),
    holder, build("p", { class: "faint" }, "Arrows: what a node waits for; dashed ones carry nothing. Pale nodes did not run in this step. Choose a node for its history.", graph.notes.map((note) => ` ${note}.`)),
    panel, build("h2", {}, "Where the time goes"), bars];
}

/** What the run does now: its phase, the nodes at work and for how long; "" where it does not say. */
function doingText({ doing, now }) {
  if (!doing) return "";
  const names = Object.entries(doing.nodes).sort((a, b) => a[1] - b[1]);
  const since = names.length === 0 ? doing.since : names[0][1];
  const shown = names.slice(0, 3).map(([name]) => name).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");
  return `${doing.phase}${shown ? `: ${shown}` : ""} · ${milliseconds(1000 * Math.max(0, now - since))}`;
}

/** Times of the nodes out of the curves, for a report. */
function timesFrom(curves, step) {
  const at = (name) => { const line = curves.series[name]; const place = line ? line.x.indexOf(step) : -1; return place < 0 ? null : line.y[place]; };
  const prefix = "perf/seconds/";
  const nodes = Object.keys(curves.series).filter((name) => name.startsWith(prefix)).map((name) => [name.slice(prefix.length), at(name)]);
  return { nodes: Object.fromEntries(nodes.map(([id, value]) => [id, value === null ? null : value * 1000])), spoke: {}, total_ms: (at("perf/seconds_per_step") || 0) * 1000 };
}

function nodePanel(box, curves) {
  const name = `perf/seconds/${box.half === "play" ? "play" : box.id}`;
  const line = curves.series[name];
  if (!line) return build("p", { class: "faint" }, `${box.label}: no times were written.`);
  return chartCard({ ...curves.guide[name], title: `${box.label}${box.half === "play" ? " (all that is sampled)" : ""}`, meaning: `${box.text}. Seconds by step.` }, [{ label: box.label, colour: colour(0), ...line }], { name });
}

// Conversations

async function talkTab(run, params) {
  if (run.files.length === 0) return [empty("No conversations yet", "They are written at the end of each step, if config.trainer.log_trajectories is true.")];
  const trained = run.files.filter((file) => file.kind === "step");
  const file = run.files.find((one) => one.name === params.file) || trained[trained.length - 1] || run.files[run.files.length - 1];
  const asked = { run: run.name, file: file.name, order: params.order || "order", text: params.text || "", task: params.task || "", offset: params.offset || 0, limit: 50 };
  const to = (changes) => go(["run", run.name, "talk"], { file: file.name, order: params.order, text: params.text, task: params.task, offset: params.offset, t: params.t, ...changes });
  const list = await ask("conversations", asked);
  const chosen = params.t !== undefined ? Number(params.t) : list.rows.length && window.innerWidth > 900 ? list.rows[0].trajectory : null;
  const one = chosen === null ? null : await ask("conversation", { run: run.name, file: file.name, trajectory: chosen });
  return [build("div", { class: params.t !== undefined ? "picked" : "" }, talkControls(run, file, params, to)),
    build("div", { class: `talk${params.t !== undefined ? " picked" : ""}` },
      build("div", { class: "talk-list" }, listHead(list, to), list.rows.map((row) => conversationCard(row, row.trajectory === chosen, () => to({ t: row.trajectory })))),
      build("div", { class: "talk-one" }, params.t !== undefined && build("button", { type: "button", class: "back", onclick: () => to({ t: "" }) }, "← all conversations"), one ? chosenConversation(one, run, file) : build("p", { class: "faint" }, "Choose a conversation.")))];
}

function talkControls(run, file, params, to) {
  const orders = [["order", "as sampled"], ["worst", "lowest reward first"], ["best", "highest reward first"], ["longest", "longest first"]];
  const search = build("input", { type: "search", value: params.text || "", placeholder: "words in prompts and answers", "aria-label": "search", onchange: () => to({ text: search.value, offset: "", t: "" }) });
  return build("div", { class: "controls" },
    labelled("At", choice(run.files.map((one) => [one.name, one.title]).reverse(), file.name, (name) => to({ file: name, offset: "", t: "" }), "step")),
    embedded === null && labelled("Order", choice(orders, params.order || "order", (order) => to({ order, offset: "", t: "" }), "order")),
    embedded === null && labelled("Find", search));
}

function listHead(list, to) {
  const last = Math.min(list.offset + 50, list.total);
  return build("div", { class: "list-head faint" },
    list.total === 0 ? "none" : `${list.offset + 1}–${last} of ${list.total}${list.total !== list.of ? ` (${list.of} in all)` : ""}`,
    build("span", { class: "spring" }),
    list.offset > 0 && build("button", { type: "button", onclick: () => to({ offset: Math.max(0, list.offset - 50), t: "" }) }, "← earlier"),
    last < list.total && build("button", { type: "button", onclick: () => to({ offset: list.offset + 50, t: "" }) }, "later →"));
}

function chosenConversation(one, run, file) {
  const holder = build("div", {});
  const draw = (measure) => {
    remembered.measure = measure;
    const known = measuresOf(one).includes(measure) ? measure : "none";
    holder.replaceChildren(conversationView(one, { measure: known, onmeasure: draw, ontask: embedded === null && file.kind !== "judged" ? (task) => go(["run", run.name, "task"], { task }) : null }));
  };
  draw(remembered.measure);
  return holder;
}

/** The same task at several steps, side by side. */
async function taskTab(run, params) {
  const { files } = await ask("task", { run: run.name, task: params.task || "" });
  if (files.length === 0) return [empty("Not found", `No file of this run has the task ${params.task}.`)];
  const whole = files.filter((file) => !file.file.includes("_without_") && !file.file.includes("@"));
  const wanted = params.files ? params.files.split(",") : [0, 0.5, 1].map((share) => whole[Math.round(share * (whole.length - 1))].file);
  const shown = files.filter((file) => wanted.includes(file.file));
  const pairs = shown.map((file) => [file, file.rows[0].trajectory]);
  const all = await Promise.all(pairs.map(([file, trajectory]) => ask("conversation", { run: run.name, file: file.file, trajectory })));
  const toggle = (name) => go(["run", run.name, "task"], { task: params.task, files: (wanted.includes(name) ? wanted.filter((one) => one !== name) : [...wanted, name]).join(",") });
  return [build("h2", {}, "Task ", build("span", { class: "mono" }, params.task), " at different steps"),
    build("div", { class: "chips" }, files.map((file) => build("button", { type: "button", class: `chip-button${wanted.includes(file.file) ? " chosen" : ""}`, "aria-pressed": wanted.includes(file.file), onclick: () => toggle(file.file) },
      file.title, " ", file.rows.map((row) => build("i", { class: `dot ${row.trajectory_reward > 0 ? "good" : "bad"}`, title: `reward ${number(row.trajectory_reward)}` }))))),
    build("div", { class: "side-by-side" }, all.map((one, index) => build("div", {}, build("h3", {}, shown[index].title), conversationView(one, { isCompact: true }))))];
}

// Configuration

async function configTab(run) {
  const { values, fault: told, overrides } = await ask("config", { run: run.name });
  if (told) return [build("pre", { class: "fault" }, told)];
  const holder = build("div", {});
  const search = build("input", { type: "search", placeholder: "find a key or value", "aria-label": "find a key or value", oninput: () => draw() });
  const defaults = build("input", { type: "checkbox", checked: remembered.defaults, onchange: () => { remembered.defaults = defaults.checked; draw(); } });
  const draw = () => {
    const shown = values.filter((one) => (remembered.defaults || search.value !== "" || one.kind !== "default") && `${one.path} ${plainText(one.value)}`.toLowerCase().includes(search.value.toLowerCase()));
    holder.replaceChildren(configTable(shown));
  };
  draw();
  return [build("div", { class: "controls" }, search, labelled("Show defaults too", defaults), build("span", { class: "faint" }, `${values.filter((one) => one.kind !== "default").length} set, ${values.length} in all`)),
    overrides.length > 0 && build("p", {}, "On the command line: ", overrides.map((one) => build("code", {}, one))), holder, machine(run)].filter(Boolean);
}

function configTable(values) {
  return table([["key", (one) => build("span", { class: "mono" }, one.path)], ["value", (one) => build("code", { class: one.kind === "override" ? "override" : "" }, shownValue(one.value))],
    ["where it comes from", (one) => build("span", { class: one.kind === "default" ? "faint" : "mono" }, one.origin)]], values, "stacked");
}

const shownValue = (value) => value === null ? "null" : plainText(value);

function machine(run) {
  const { packages, ...rest } = run.versions;
  const rows = [...Object.entries(rest), ...Object.entries(packages || {})].map(([key, value]) => ({ key, value }));
  return build("section", {}, build("h2", {}, "Machine and versions"), build("p", { class: "faint mono" }, run.path),
    table([["name", (row) => row.key], ["value", (row) => build("code", {}, Array.isArray(row.value) ? row.value.join(" ") || "none" : shownValue(row.value))]], rows),
    build("h2", {}, "Checkpoints"), run.checkpoints.length === 0 ? build("p", { class: "faint" }, "none yet") : table([["step", (one) => one.step], ["size", (one) => bytes(one.bytes)], ["whole", (one) => one.complete ? pill("whole", "good") : pill("damaged", "bad")]], run.checkpoints));
}

// Start, and life while a run goes on

async function refresh() {
  if (embedded !== null || document.hidden || document.activeElement?.matches("input, select")) return;
  const { parts, params } = place();
  if (parts[0] === "compare" || parts[2] === "talk" || parts[2] === "task" || parts[2] === "config" || params.step) return;
  const stamp = await stampOf(parts);
  // The first look draws once more: something may have changed since the page was drawn.
  if (stamp !== refresh.stamp) await show({ isRefresh: true });
  refresh.stamp = stamp;
}

/** Changes when what the page shows has changed. */
async function stampOf([view, name, tab]) {
  const { runs } = await ask("runs");
  return JSON.stringify([location.hash, runs.filter((run) => view !== "run" || run.name === name).map((run) => [run.name, run.state, run.step, tab === "graph" && run.doing])]);
}

window.addEventListener("hashchange", () => show());
topLine();
if (embedded !== null && location.hash.length < 3) location.replace(address(["run", embedded.run]));
show();
setInterval(() => refresh().catch(() => undefined), POLL_MS);
