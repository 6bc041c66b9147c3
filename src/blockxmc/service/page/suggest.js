// One text after the other: suggestions as you type, accepting, evidence, the next text.
import { of } from "./api.js";
import { byId, downloadLabels, h, later, percent, trouble } from "./dom.js";
import { evidence } from "./evidence.js";
import * as work from "./work.js";

const MOST = 50; // suggestions that are asked for
const FEW = 5; // that are shown at least, and that a press of the button adds
let model = null;
let suggestions = [];
let shown = FEW;
let open = null; // {label, element}: the evidence that is seen
let asking = null; // what is being asked for and can be called off
let loading = null; // until the suggestions for the text are there
let known = null; // whether the model knows a word of the text; null: it has not said yet

export function chosen(card, text) {
  model = card;
  byId("teach").hidden = !card.updates;
  byId("text").disabled = !card.takes_text;
  if (text !== undefined && text !== work.current().text) work.add([{ text }]);
  here();
}

/** Shows the current text. */
function here() {
  byId("text").value = work.current().text;
  byId("said").textContent = "";
  open = null;
  shown = 0;
  suggestions = [];
  known = null;
  draw();
  loading = fetchSuggestions();
}

async function fetchSuggestions() {
  asking?.abort();
  const text = work.current().text;
  if (!model?.takes_text || !text.trim()) {
    suggestions = [];
    open = null;
    return draw();
  }
  const mine = (asking = new AbortController());
  try {
    const answer = await of(model.name, "suggest", { text, k: MOST, threshold: model.probabilities ? 0 : null }, mine.signal);
    ({ suggestions, known } = answer.results[0]);
    shown = Math.max(FEW, suggestions.filter(isLikely).length);
    trouble();
    draw();
    if (open) explain(open.label);
  } catch (error) {
    if (error.name !== "AbortError") trouble(error.message);
  }
}

const isLikely = (one) => model.probabilities && one.score > (model.f1_threshold ?? 0);

function draw() {
  const { text, labels } = work.current(), { at, count, labelled } = work.place();
  const focus = document.activeElement?.dataset?.key; // stays where it was, although the list is drawn anew
  const listed = suggestions.slice(0, shown);
  const rows = listed.map(suggestion);
  if (open?.element && !listed.some((one) => one.label === open.label)) rows.unshift(h("li", { class: "apart" }, open.element));
  byId("suggestions").replaceChildren(...(rows.length ? rows : [h("li", { class: "nothing" }, !text.trim() ? "Labels for your text appear here." : known === null ? "…" : known ? "No label is likely." : "The model knows no word of this text.")]));
  if (focus) document.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
  byId("state").textContent = suggestions.length ? "best first; a click accepts" : "";
  byId("more").hidden = suggestions.length <= shown;
  byId("accepted").replaceChildren(...(labels.length ? labels.map((label) => h("li", {}, String(label),
    h("button", { "aria-label": `Remove ${label}`, onclick: () => judge(label) }, "×"))) : [h("li", { class: "empty" }, "None yet.")]));
  byId("place").textContent = count > 1 ? `${at + 1} of ${count}` : "";
  byId("start").hidden = !model?.example || text !== "";
  byId("collected").hidden = !labelled;
  byId("collected-text").textContent = `${labelled} ${labelled === 1 ? "text" : "texts"} labelled`;
  byId("previous").disabled = at === 0;
  byId("next").disabled = byId("share").disabled = !text.trim();
  byId("undo").disabled = !work.canUndo();
  byId("copy-list").disabled = !labels.length;
  byId("teach").disabled = !labels.length || !text.trim();
}

function suggestion(one, i) {
  const { label, score } = one, bar = h("span", { class: "bar" });
  bar.style.width = model.probabilities ? `${100 * score}%` : "0";
  const accepted = work.current().labels.includes(label), seen = open?.label === label && open.element;
  return h("li", { class: `${accepted ? "accepted" : ""} ${isLikely(one) ? "" : "unlikely"}` },
    h("button", { class: "name", "aria-pressed": String(accepted), "data-key": `accept ${label}`, title: accepted ? "Take it back" : "Accept", onclick: () => judge(label) },
      bar, i < 9 ? h("kbd", { "aria-hidden": "true" }, String(i + 1)) : null, h("span", { class: "label" }, String(label)),
      h("span", { class: "score" }, `${accepted ? "✓ " : ""}${model.probabilities ? percent(score) : score.toFixed(3)}`)),
    h("button", { class: "ask", "aria-expanded": String(Boolean(seen)), "aria-label": `Why ${label}?`, "data-key": `why ${label}`, onclick: () => (open?.label === label ? close() : explain(label)) }, "Why?"),
    seen || null);
}

function judge(label) {
  work.toggle(label);
  byId("said").textContent = "";
  draw();
}

function close() {
  open = null;
  draw();
}

async function explain(label) {
  const text = work.current().text, before = open?.label === label ? open.element : null;
  const mine = (open = { label, element: before });
  try {
    const answer = await of(model.name, "explain", { text, labels: [label], k: Math.max(1, shown) });
    if (open !== mine) return;
    open.element = evidence(text, answer.explanations[0]);
    draw();
    if (!before) open.element.scrollIntoView({ block: "nearest" });
    trouble();
  } catch (error) {
    open = null;
    trouble(error.message);
  }
}

// ---- the next text ----
function go(step) {
  if (!work.move(step)) return;
  const typing = work.current().text === "";
  here();
  if (typing) byId("text").focus();
  else document.activeElement?.blur();
  window.scrollTo({ top: 0 });
}

export function addTexts(texts) {
  work.add(texts);
  here();
}

function undo() {
  const before = work.current();
  work.undo();
  if (work.current() === before) draw();
  else here();
}

function startOver() {
  if (!confirm("Forget the texts and labels of this tab?")) return;
  work.startOver();
  here();
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    byId("said").textContent = `Copied ${what}.`;
  } catch {
    byId("said").textContent = "The browser does not let pages copy here (it wants HTTPS or localhost).";
  }
}

/** What stands behind # is never sent to a server, so the text is in no log. */
function share() {
  const text = byId("text").value, address = new URL(location.href);
  address.hash = new URLSearchParams({ tab: "suggest", model: model.name, text });
  if (address.href.length > 30_000) byId("said").textContent = "The text is too long for an address.";
  else copy(address.href, "a link that opens this text here");
}

async function teach() {
  byId("teach").disabled = true;
  byId("said").textContent = "The model learns …";
  try {
    await of(model.name, "update", { texts: [work.current().text], labels: [work.current().labels.map(String)] });
    byId("said").textContent = "The model has learnt this text.";
    fetchSuggestions();
  } catch (error) {
    byId("said").textContent = error.message;
  }
  draw();
}

// ---- a label by its name ----
let matches = []; // {label, training_rows}; the last one may be a new name
let picked = 0;

async function offerNames() {
  const words = byId("missing").value.trim();
  if (!words || !model) return drawMatches([]);
  try {
    const { labels } = await of(model.name, `labels?limit=10&q=${encodeURIComponent(words)}`);
    if (byId("missing").value.trim() !== words) return;
    const known = labels.some((one) => String(one.label) === words);
    drawMatches([...labels, ...(known ? [] : [{ label: words, fresh: true }])]);
  } catch (error) {
    trouble(error.message);
  }
}

function drawMatches(found, at = 0) {
  matches = found;
  picked = Math.min(Math.max(0, at), found.length - 1);
  const field = byId("missing"), list = byId("matches");
  list.hidden = !found.length;
  field.setAttribute("aria-expanded", String(found.length > 0));
  if (found.length) field.setAttribute("aria-activedescendant", `match-${picked}`);
  else field.removeAttribute("aria-activedescendant");
  list.replaceChildren(...found.map((one, i) => h("li", { role: "option", id: `match-${i}`, "aria-selected": String(i === picked), onpointerdown: (event) => { event.preventDefault(); take(one); } },
    h("span", {}, one.fresh ? `New label: ${one.label}` : String(one.label)), one.fresh ? null : h("span", { class: "quiet" }, `${one.training_rows.toLocaleString("en")} texts`))));
  list.children[picked]?.scrollIntoView({ block: "nearest" });
}

function take(one) {
  byId("missing").value = "";
  drawMatches([]);
  if (!work.current().labels.includes(one.label)) judge(one.label);
  if (!one.fresh && work.current().text.trim()) explain(one.label);
}

byId("missing").addEventListener("input", later(offerNames, 120));
byId("missing").addEventListener("blur", () => drawMatches([]));
byId("missing").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && matches.length) {
    event.preventDefault();
    drawMatches(matches, picked + step);
  }
});
byId("add").addEventListener("submit", async (event) => {
  event.preventDefault();
  const words = byId("missing").value.trim();
  if (!words) return;
  if (!matches.length || !matches.some((one) => String(one.label).toLowerCase().includes(words.toLowerCase()))) await offerNames();
  if (matches[picked]) take(matches[picked]);
});

// ---- keys ----
let pressed = Promise.resolve();
const KEYS = {
  n: () => go(1),
  p: () => go(-1),
  u: undo,
  "/": () => byId("missing").focus(),
  e: () => byId("text").focus(),
  w: () => {
    const label = document.activeElement?.closest("#suggestions li")?.querySelector(".label")?.textContent;
    const one = suggestions.find((other) => String(other.label) === label) ?? suggestions[0];
    if (one) open?.label === one.label ? close() : explain(one.label);
  },
};
document.addEventListener("keydown", (event) => {
  if (byId("suggest").hidden || document.querySelector("dialog[open]")) return;
  const field = event.target.closest("input, textarea, select");
  if (field && event.key === "Escape") return field.blur();
  if (event.ctrlKey && event.key === "Enter") return go(1);
  if (field || event.ctrlKey || event.metaKey || event.altKey) return;
  const place = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
  if (!place && !KEYS[event.key]) return;
  event.preventDefault();
  if (event.key === "/" || event.key === "e") return KEYS[event.key]();
  // Other keys are faster than answers: each waits for the suggestions of its text.
  pressed = pressed.then(() => loading).then(() => {
    const one = suggestions.slice(0, shown)[place - 1];
    if (KEYS[event.key]) KEYS[event.key]();
    else if (one) judge(one.label);
  });
});

const ask = later(fetchSuggestions, 150);
byId("text").addEventListener("input", () => {
  work.setText(byId("text").value);
  byId("said").textContent = "";
  ask();
});
byId("example").addEventListener("click", () => {
  work.setText(model.example);
  here();
});
byId("more").addEventListener("click", () => { shown += FEW; draw(); });
byId("next").addEventListener("click", () => go(1));
byId("previous").addEventListener("click", () => go(-1));
byId("undo").addEventListener("click", undo);
byId("copy-list").addEventListener("click", () => copy(work.current().labels.join("\n"), "the labels"));
byId("download").addEventListener("click", () => downloadLabels("labels.csv", work.labelled()));
byId("start-over").addEventListener("click", startOver);
byId("share").addEventListener("click", share);
byId("teach").addEventListener("click", teach);
