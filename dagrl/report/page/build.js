"use strict";
// Elements, numbers as text, and questions to the server. Text from a run enters the page through textContent alone.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `attributes` with `on…` are listeners, `style` is a map of properties; children are nodes or texts. */
function build(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function buildSvg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Colour of the agent, node or run with this number. */
const colour = (number) => `var(--c${((number % 8) + 8) % 8})`;

function number(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace("-", "−").replace("e-", "e−");
  if (Number.isInteger(value)) return String(value).replace("-", "−");
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toFixed(digits).replace("-", "−");
}

function milliseconds(value) {
  if (value === null || value === undefined) return "";
  if (value >= 60000) return `${(value / 60000).toFixed(1)} min`;
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10000 ? 0 : 2)} s`;
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(1)} ms`;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value >= 10 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

// Questions

const embedded = (() => {
  const element = document.getElementById("answers");
  return element === null ? null : JSON.parse(element.textContent);
})();

/** The answer to a question; in a report, the one that was packed into it. */
async function ask(question, params = {}) {
  if (embedded !== null) return packed(question, params);
  const reply = await fetch(`/api/${question}?${new URLSearchParams(params)}`);
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.fault);
  return answer;
}

function packed(question, params) {
  const keys = { conversations: ["run", "file"] }[question] || Object.keys(params).sort();
  const name = JSON.stringify([question, keys.map((key) => String(params[key]))]);
  if (name in embedded) return embedded[name];
  throw new Error("This is not packed into the report; `dagrl view` on the run folder shows it.");
}

/** What to show in place of something that could not be had. */
const fault = (error) => build("p", { class: "fault", role: "alert" }, error.message || String(error));

const pill = (text, kind, title) => build("span", { class: `pill ${kind}`, title }, text);

const empty = (title, text) => build("div", { class: "empty" }, build("h2", {}, title), build("p", {}, text));

function labelled(text, control) {
  return build("label", { class: "control" }, build("span", {}, text), control);
}

function choice(options, chosen, onchange, label) {
  const select = build("select", { "aria-label": label, onchange: () => onchange(select.value) },
    options.map(([value, text]) => build("option", { value, selected: value === chosen }, text)));
  return select;
}
