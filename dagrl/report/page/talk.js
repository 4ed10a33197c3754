"use strict";
// Conversations: turns in order, what each agent had read, numbers of every token as colours.

const MEASURES = {
  none: { label: "plain text" },
  advantages: { label: "advantage", kind: "signed", meaning: "blue: made more likely; red: made less likely" },
  rollout_logprobs: { label: "log-prob when sampled", kind: "surprise", meaning: "the darker, the less likely the token was" },
  values: { label: "value", kind: "range", meaning: "what the critic expected from here on; darker is more" },
  returns: { label: "return", kind: "range", meaning: "what came from here on; darker is more" },
  rewards: { label: "reward", kind: "signed", meaning: "blue: above 0; red: below 0" },
  old_logprobs: { label: "log-prob when trained", kind: "surprise", meaning: "the darker, the less likely the token was" },
  drift: { label: "apart from reference", kind: "signed", meaning: "blue: likelier than under the reference model; red: less likely" },
};

function measuresOf(one) {
  const has = (name) => one.turns.some((turn) => valuesOf(turn, name) !== null);
  return Object.keys(MEASURES).filter((name) => name === "none" || has(name));
}

function valuesOf(turn, measure) {
  if (measure === "drift") {
    const [own, reference] = [turn.columns.rollout_logprobs, turn.columns.ref_logprobs];
    return own && reference ? own.map((value, place) => value - reference[place]) : null;
  }
  return turn.columns[measure] || null;
}

/** Where the colours of a measure begin and end, over the whole conversation. */
function spanOf(one, measure) {
  const values = one.turns.flatMap((turn) => valuesOf(turn, measure) || []).filter((value) => value !== null);
  if (values.length === 0) return { low: 0, high: 0, size: 1 };
  const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  return { low, high, size: Math.max(Math.abs(low), Math.abs(high)) || 1 };
}

function shade(value, kind, span) {
  if (value === null || value === undefined) return null;
  if (kind === "signed") return [value >= 0 ? "plus" : "minus", Math.abs(value) / span.size];
  if (kind === "surprise") return ["rare", Math.min(1, -value / 3)];
  return ["range", (value - span.low) / (span.high - span.low || 1)];
}

/** A whole conversation. `measure` colours the tokens; `onmeasure` is told of another choice, `ontask` of the wish to
 *  see the task at other steps. */
function conversationView(one, { measure = "none", onmeasure, ontask, isCompact = false }) {
  const span = spanOf(one, measure);
  const rounds = [...new Set(one.turns.map((turn) => turn.round))];
  return build("article", { class: `conversation${isCompact ? " compact" : ""}` },
    conversationHead(one, { measure, onmeasure, ontask, isCompact }),
    measure !== "none" && scale(measure, span),
    rounds.map((round) => roundView(one, round, measure, span, isCompact)),
    build("p", { class: "end" }, `ended: ${one.stop_reason || "unknown"}`),
    !isCompact && breakdown(one));
}

function conversationHead(one, { measure, onmeasure, ontask, isCompact }) {
  return build("header", { class: "conversation-head" },
    build("div", { class: "facts" },
      rewardPill(one.reward),
      build("span", { class: "mono" }, one.task_id), build("span", { class: "faint" }, `sample ${one.sample}`),
      build("span", { class: "faint" }, one.data_source), build("span", { class: "faint" }, milliseconds(one.seconds * 1000))),
    build("div", { class: "facts" }, build("span", { class: "faint" }, "right answer"), build("code", {}, plainText(one.ground_truth))),
    !isCompact && build("div", { class: "controls" },
      labelled("Colour tokens by", choice(measuresOf(one).map((name) => [name, MEASURES[name].label]), measure, onmeasure, "colour of the tokens")),
      ontask && build("button", { type: "button", onclick: () => ontask(one.task_id) }, "This task at other steps")));
}

const plainText = (value) => typeof value === "string" ? value : JSON.stringify(value);

function rewardPill(reward) {
  if (reward === null) return pill("reward unknown", "neutral");
  return pill(`reward ${number(reward)}`, reward > 0 ? "good" : reward < 0 ? "bad" : "neutral");
}

function scale(measure, span) {
  const { kind, meaning, label } = MEASURES[measure];
  const ends = { signed: [-span.size, span.size], surprise: [0, -3], range: [span.low, span.high] }[kind];
  return build("div", { class: "scale" }, build("span", { class: "mono" }, number(ends[0])), build("i", { class: `ramp ${kind}` }),
    build("span", { class: "mono" }, number(ends[1])), build("span", { class: "faint" }, `${label}: ${meaning}`));
}

function roundView(one, round, measure, span, isCompact) {
  const turns = one.turns.filter((turn) => turn.round === round);
  const told = new Map();
  for (const turn of turns) {
    if (turn.observation === null) continue;
    if (!told.has(turn.observation)) told.set(turn.observation, []);
    told.get(turn.observation).push(turn);
  }
  return build("section", { class: "round" },
    build("h4", {}, `Round ${round + 1}`),
    turns.map((turn) => turnView(one, turn, measure, span, isCompact)),
    [...told].map(([text, hearers]) => build("div", { class: "turn environment" },
      build("div", { class: "turn-head" }, build("span", { class: "who" }, "environment"), build("span", { class: "faint" }, `to ${hearers.map((turn) => turn.agent).join(", ")}`)),
      build("pre", { class: "said" }, text))));
}

function turnView(one, turn, measure, span, isCompact) {
  const seen = seenBy(one, turn);
  return build("div", { class: "turn", style: { "--own": colour(turn.group) } },
    build("div", { class: "turn-head" },
      build("span", { class: "who" }, turn.agent), turn.branch > 0 && pill(`branch ${turn.branch}`, "neutral"),
      build("span", { class: "faint" }, `${turn.ids.length} tokens · ${milliseconds(turn.seconds * 1000)}`),
      turn.finish_reason === "length" && pill("cut at max_tokens", "bad"),
      one.reward !== null && turn.reward !== 0 && rewardPill(turn.reward),
      meanOf(turn, "advantages") !== null && build("span", { class: "faint", title: "mean advantage of its tokens" }, `advantage ${number(meanOf(turn, "advantages"))}`)),
    build("details", { class: "read", open: !isCompact && turn.position === 0 },
      build("summary", {}, "read ", seen.chips.map((chip) => build("span", { class: "chip", style: { "--own": chip.colour } }, chip.label))),
      build("pre", {}, seen.parts)),
    build("div", { class: "said" }, said(turn, measure, span)));
}

function meanOf(turn, column) {
  const values = turn.columns[column];
  return values && values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

function said(turn, measure, span) {
  const values = valuesOf(turn, measure);
  if (measure === "none" || values === null) return turn.response === "" ? build("i", { class: "faint" }, "(said nothing)") : turn.response;
  return turn.ids.map((id, place) => {
    const text = turn.tokens === null ? `${id} ` : turn.tokens[place];
    const [kind, strength] = shade(values[place], MEASURES[measure].kind, span) || ["range", 0];
    return build("span", { class: `token ${kind}`, style: { "--strength": `${(strength * 72).toFixed(0)}%` }, title: numbersOf(turn, place) }, text.replace(/\n/g, "↵\n"));
  });
}

/** Everything known of one token, for its tool tip. */
function numbersOf(turn, place) {
  const lines = [`token ${turn.ids[place]}`];
  for (const name of Object.keys(MEASURES)) {
    const values = valuesOf(turn, name);
    if (values !== null && name !== "none") lines.push(`${MEASURES[name].label}: ${number(values[place])}`);
  }
  if (turn.columns.rollout_logprobs) lines.push(`probability: ${number(Math.exp(turn.columns.rollout_logprobs[place]))}`);
  return lines.join("\n");
}

// Who saw what: earlier messages found again in a prompt

function seenBy(one, turn) {
  const messages = [];
  for (const other of one.turns) {
    if (other.position >= turn.position) break;
    messages.push({ text: other.response.trim(), label: `${other.agent} · round ${other.round + 1}`, colour: colour(other.group) });
    if (other.observation !== null && other.round < turn.round) messages.push({ text: other.observation.trim(), label: `environment · round ${other.round + 1}`, colour: "var(--environment)" });
  }
  const spans = found(turn.prompt, messages.filter((message) => message.text.length > 2));
  const parts = [];
  let at = 0;
  for (const span of spans) {
    parts.push(turn.prompt.slice(at, span.start), build("mark", { style: { "--own": span.message.colour }, title: span.message.label }, turn.prompt.slice(span.start, span.end)));
    at = span.end;
  }
  parts.push(turn.prompt.slice(at));
  const labels = new Map([["the problem", "var(--faint)"]]);
  for (const message of messages) if (spans.some((span) => span.message.label === message.label)) labels.set(message.label, message.colour);
  return { parts, chips: [...labels].map(([label, own]) => ({ label, colour: own })) };
}

/** Where messages stand in a text; the longest win, none overlap, later ones are looked for from the end. */
function found(text, messages) {
  const spans = [];
  const isFree = (start, end) => spans.every((span) => end <= span.start || start >= span.end);
  for (const message of [...messages].reverse().sort((a, b) => b.text.length - a.text.length)) {
    for (let start = text.lastIndexOf(message.text); start >= 0; start = start === 0 ? -1 : text.lastIndexOf(message.text, start - 1)) {
      if (!isFree(start, start + message.text.length)) continue;
      spans.push({ start, end: start + message.text.length, message });
      break;
    }
  }
  return spans.sort((a, b) => a.start - b.start);
}

// Reward break-down

function breakdown(one) {
  const parts = [...new Set(one.turns.flatMap((turn) => Object.keys(turn.reward_parts)))];
  const sums = (turn, column) => turn.columns[column] ? turn.columns[column].reduce((sum, value) => sum + value, 0) : null;
  const columns = [["turn", (turn) => build("span", { class: "who-cell", style: { "--own": colour(turn.group) } }, `${turn.agent} · round ${turn.round + 1}`)],
    ["reward", (turn) => number(turn.reward)], ...parts.map((part) => [part, (turn) => number(turn.reward_parts[part])]),
    ["on its tokens", (turn) => number(sums(turn, "rewards"))], ["mean value", (turn) => number(meanOf(turn, "values"))],
    ["mean return", (turn) => number(meanOf(turn, "returns"))], ["mean advantage", (turn) => number(meanOf(turn, "advantages"))],
    ["mean log-prob", (turn) => number(meanOf(turn, "rollout_logprobs"))], ["weights of update", (turn) => turn.policy_version]];
  return build("section", { class: "breakdown" }, build("h4", {}, "Where the reward went"), table(columns, one.turns),
    build("p", { class: "faint" }, `The team's reward is ${one.reward === null ? "unknown" : number(one.reward)}; how it is shared out is config.algorithm.reward_mode.`));
}

/** A table; `kind` "stacked" puts the cells of a row below each other where there is little room. */
function table(columns, rows, kind = "") {
  return build("div", { class: "table-wrap" }, build("table", { class: kind },
    build("thead", {}, build("tr", {}, columns.map(([title]) => build("th", {}, title)))),
    build("tbody", {}, rows.map((row) => build("tr", {}, columns.map(([title, cell]) => build("td", { "data-column": title }, cell(row))))))));
}

// Lists

function conversationCard(row, isChosen, onpick) {
  return build("button", { type: "button", class: `card-row${isChosen ? " chosen" : ""}`, "aria-pressed": isChosen, onclick: onpick },
    build("span", { class: "facts" }, rewardPill(row.trajectory_reward), build("span", { class: "mono" }, row.task_id),
      build("span", { class: "faint" }, `${row.num_rounds} round${row.num_rounds === 1 ? "" : "s"} · ${row.tokens} tokens · ${row.stop_reason || ""}`)),
    build("span", { class: "clip" }, row.question),
    build("span", { class: "clip answer" }, row.answer));
}
