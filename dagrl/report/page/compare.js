"use strict";
// Several runs: those that differ in the seed alone are one group, a line with the confidence interval of its mean.

const DASHES = [null, "6 4", "2 3", "8 3 2 3"];

async function comparePage(params) {
  document.title = "compare · dagrl";
  const names = (params.runs || "").split(",").filter(Boolean);
  if (names.length < 2) return [empty("Nothing to compare", "Choose two runs or more in the list.")];
  const told = await ask("compare", { runs: names.join(",") });
  const several = told.groups.length > 1;
  return [build("nav", { class: "crumbs" }, build("a", { href: "#/" }, "Runs"), " / compare"),
    build("h1", {}, several ? `${told.groups.length} groups, ${names.length} runs` : `${names.length} runs of one workflow`),
    build("p", { class: "faint" }, several ? "Runs that differ in the seed alone are one group." : "They differ in the seed alone."),
    build("div", { class: "groups" }, told.groups.map(groupCard)),
    build("h2", {}, "At the end"), endTable(told),
    several && build("h2", {}, "What was set otherwise"), several && differenceTable(told.settings, told.groups, "the resolved workflows are the same"),
    several && build("h2", {}, "What was programmed otherwise"), ...(several ? told.code.map((one) => codeDiff(one, told.groups[0].label)) : []),
    several && told.versions.length > 0 && build("h2", {}, "Where they ran"), several && told.versions.length > 0 && differenceTable(told.versions, told.groups, ""),
    build("h2", {}, "Curves"), build("p", { class: "faint" }, told.groups.some((group) => group.runs.length > 1) ? "Thick: mean over the seeds, with its 95 % confidence interval; thin: each seed. To the last step that all runs have." : "To the last step that all runs have."),
    ...curveSections(told.guide, (one) => comparedLines(one, told))];
}

const seatOf = (told, label) => told.groups.findIndex((group) => group.label === label);

function groupCard(group, seat) {
  return build("section", { class: "group-card", style: { "--own": colour(seat) } }, build("h3", {}, group.label),
    group.runs.map((run) => build("p", {}, build("a", { href: address(["run", run.name]), class: "mono" }, run.name), " ", statePill(run), build("span", { class: "faint" }, ` seed ${run.seed} · step ${run.step}`))));
}

/** The mean over the last tenth of the steps; of a single group each seed too. */
function endTable(told) {
  if (told.ends.length === 0) return build("p", { class: "faint" }, "No numbers yet.");
  const of = (row, label) => row.groups[label] || { end: "–", by_run: [], gain: null };
  const columns = [["metric", (row) => build("span", { title: row.name }, endTitle(row.name, told.guide[row.name]))]];
  const single = told.groups.length === 1;
  for (const group of told.groups) {
    columns.push([single ? "mean" : group.label, (row) => build("b", {}, of(row, group.label).end)]);
    if (group !== told.groups[0]) columns.push([`${group.label} less ${told.groups[0].label}`, (row) => gainCell(of(row, group.label))]);
  }
  if (single) columns.push(...told.groups[0].runs.map((run, place) => [`seed ${run.seed}`, (row) => number(of(row, told.groups[0].label).by_run[place])]));
  return build("div", { class: "ends" }, table(columns, told.ends, "listed"), build("p", { class: "faint" }, "Mean over the last tenth of the steps; ± half of its 95 % confidence interval over seeds (Student; differences: Welch)."));
}

function endTitle(name, guide) {
  const agent = /^agent_([^/]+)[/]/.exec(name);
  return agent ? `${guide.title}, ${agent[1]}` : guide.title;
}

function gainCell(one) {
  if (one.gain === null) return "–";
  return build("span", {}, one.gain, " ", build("span", { class: "faint" }, one.is_clear ? "clear" : one.verdict));
}

function differenceTable(found, groups, none) {
  if (found.length === 0) return build("p", { class: "faint" }, `Nothing: ${none}.`);
  return table([["key", (one) => build("span", { class: "mono" }, one.path)], ...groups.map((group, place) => [group.label, (one) => build("code", {}, one.values[place])])], found, "listed");
}

function codeDiff(one, first) {
  if (one.lines.length === 0) return build("p", { class: "faint" }, `Nothing: hooks, environments and rewards of ${first} and ${one.label} are the same.`);
  const kinds = { "+": "added", "-": "removed", "@": "faint" };
  return build("pre", { class: "diff", "aria-label": `code of ${first} and ${one.label}` }, one.lines.map((line) => build("span", { class: /^([+]{3}|-{3}) /.test(line) ? "file" : kinds[line[0]] || "" }, `${line}\n`)));
}

function comparedLines(one, told) {
  return one.names.flatMap(([label, name], position) => (told.curves[name] || []).flatMap((curve) => {
    const agent = told.agents.includes(label) ? told.agents.indexOf(label) : position;
    const look = { colour: colour(seatOf(told, curve.label)), dash: one.names.length > 1 ? DASHES[agent % DASHES.length] : null };
    const seeds = curve.by_run.length > 1 ? curve.by_run.map((points) => ({ ...look, ...points, label: "", isThin: true })) : [];
    const band = curve.low.length > 1 ? { x: curve.band_x, low: curve.low, high: curve.high } : null;
    return [...seeds, { ...look, ...curve, band, always: true, label: one.names.length > 1 ? `${curve.label} ${label}` : curve.label }];
  }));
}
