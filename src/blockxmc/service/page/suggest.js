// One text: suggestions as you type, why, accepting and rejecting.
import { of } from "./api.js";
import { byId, csvLine, h, later, percent, signed, table, trouble } from "./dom.js";

const MOST = 50; // suggestions that the slider cuts
const MARKED = 15; // words that are marked, those that count most
const MORE = 5; // labels that a press of the button adds
let model = null;
let suggestions = [];
let selected = null; // the label that is explained
let asking = null; // what is being asked for and can be called off
const verdicts = new Map(); // label -> "accepted" or "rejected"

export function chosen(card) {
  model = card;
  forget();
  byId("teach").hidden = !card.updates;
  byId("threshold-control").hidden = !card.probabilities;
  byId("threshold").value = card.probabilities ? Math.round(100 * Math.min(card.f1_threshold ?? 0, 1)) : 0;
  byId("text").disabled = !card.takes_text;
  fetchSuggestions();
}

/** What was said of one text is not said of the next. */
function forget() {
  verdicts.clear();
  selected = null;
  byId("why").hidden = true;
  byId("copied").textContent = "";
}

function newText() {
  byId("text").value = "";
  fetchSuggestions();
  byId("text").focus();
}

async function fetchSuggestions() {
  asking?.abort();
  const text = byId("text").value;
  byId("new-text").disabled = !text;
  if (!model?.takes_text || !text.trim()) {
    suggestions = [];
    forget();
    byId("state").textContent = "";
    return draw();
  }
  const mine = (asking = new AbortController());
  try {
    const answer = await of(model.name, "suggest", { text, k: MOST }, mine.signal);
    suggestions = answer.results[0].suggestions;
    trouble();
    draw();
    if (selected !== null && !byId("why").hidden) explain(selected, false);
  } catch (error) {
    if (error.name !== "AbortError") trouble(error.message);
  }
}

function threshold() {
  return model?.probabilities ? byId("threshold").value / 100 : -Infinity;
}

function draw() {
  byId("threshold-value").textContent = `${byId("threshold").value} %`;
  const shown = suggestions.filter((one) => one.score > threshold());
  const hidden = suggestions.length - shown.length;
  if (byId("text").value.trim()) {
    byId("state").textContent = `${shown.length} shown` + (hidden ? `, ${hidden} less likely` : "");
  }
  byId("more").hidden = !hidden || threshold() <= 0;
  // The focus stays where it was, although the list is drawn anew.
  const focus = document.activeElement?.dataset?.key;
  byId("suggestions").replaceChildren(...shown.map(suggestion));
  if (focus) byId("suggestions").querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
  drawAccepted();
}

function suggestion({ label, score }) {
  const bar = h("span", { class: "bar" });
  bar.style.width = model.probabilities ? `${100 * score}%` : "0";
  const verdict = verdicts.get(label);
  const number = model.probabilities ? percent(score) : score.toFixed(3);
  const name = h("button", { class: "name", "aria-pressed": String(label === selected), "data-key": `why ${label}`, title: "Why?", onclick: () => explain(label) },
    bar, h("span", {}, String(label)), h("span", {}, number));
  const mark = (what, sign, said) => h("button",
    { class: "mark", "aria-pressed": String(verdict === what), "aria-label": `${said} ${label}`, "data-key": `${what} ${label}`, onclick: () => judge(label, what) }, sign);
  return h("li", { class: verdict ?? "" }, name, mark("accepted", "✓", "Accept"), mark("rejected", "✗", "Reject"));
}

function judge(label, verdict) {
  if (verdicts.get(label) === verdict) verdicts.delete(label);
  else verdicts.set(label, verdict);
  draw();
}

const accepted = () => [...verdicts].filter(([, verdict]) => verdict === "accepted").map(([label]) => label);

function drawAccepted() {
  const labels = accepted();
  byId("accepted").replaceChildren(...labels.map((label) =>
    h("li", {}, String(label), h("button", { "aria-label": `Remove ${label}`, onclick: () => judge(label, "accepted") }, "×"))));
  for (const id of ["copy-list", "copy-csv"]) byId(id).disabled = !labels.length;
  byId("teach").disabled = !labels.length || !byId("text").value.trim();
}

/** The slider goes down as far as it must to show a few more. */
function showMore() {
  const next = suggestions.filter((one) => one.score <= threshold()).slice(0, MORE).at(-1);
  if (next) byId("threshold").value = Math.max(0, Math.ceil(100 * next.score) - 1);
  draw();
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = `Copied ${what}.`;
  } catch {
    byId("copied").textContent = "The browser does not let pages copy here (it wants HTTPS or localhost).";
  }
}

async function teach() {
  byId("teach").disabled = true;
  byId("copied").textContent = "The model learns …";
  try {
    await of(model.name, "update", { texts: [byId("text").value], labels: [accepted().map(String)] });
    byId("copied").textContent = "The model has learnt this text.";
    fetchSuggestions();
  } catch (error) {
    byId("copied").textContent = error.message;
  }
  drawAccepted();
}

// ---- why ----
async function explain(label, asked = true) {
  selected = label;
  draw();
  const text = byId("text").value;
  try {
    const answer = await of(model.name, "explain", { text, labels: [label], k: Math.max(1, suggestions.filter((one) => one.score > threshold()).length) });
    if (selected === label) drawWhy(text, answer.explanations[0]);
    // On a phone the answer stands below the list: who asked for it sees it.
    const why = byId("why");
    if (asked && why.getBoundingClientRect().top > window.innerHeight - 100) why.scrollIntoView({ block: "start" });
    trouble();
  } catch (error) {
    trouble(error.message);
  }
}

function drawWhy(text, why) {
  const parts = why.features.filter((feature) => feature.part).slice(0, MARKED);
  const chance = why.probability == null ? "" : `, probability ${percent(why.probability)}`;
  const others = why.features.slice(MARKED).reduce((sum, feature) => sum + feature.part, why.other_features);
  const rows = why.score == null ? [] : [
    ...parts.map((feature) => [feature.name ?? `feature ${feature.feature}`, signed(feature.part)]),
    ...(others ? [["other words", signed(others)]] : []),
    ["the label in general", signed(why.constant)],
    ...Object.entries(why.terms).map(([name, part]) => [name, signed(part)]),
    ["score", why.score.toFixed(3)],
  ];
  const close = h("button", { "aria-label": "Close the explanation", onclick: () => { selected = null; byId("why").hidden = true; draw(); } }, "×");
  const accept = h("button", { onclick: () => { if (verdicts.get(why.label) !== "accepted") judge(why.label, "accepted"); } }, "Accept");
  const blocks = why.blocks.map((block) => `${block.block} (${percent(block.probability)}${block.has_label ? ", has the label" : ""})`);
  const neighbors = why.neighbors.map((near) => [`row ${near.row}`, percent(near.similarity), near.has_label ? "yes" : "no", near.labels.join(", ")]);
  byId("why").replaceChildren(
    h("div", { class: "heading-row" }, h("h2", {}, `Why ${why.label}?`), h("span", { class: "grow" }), accept, close),
    h("p", {}, `${why.fate}${chance}`),
    marked(text, parts),
    h("div", { class: "columns" },
      h("div", {}, ...(rows.length ? [h("h3", {}, "What counts"), table(["Word", "Part of the score"], rows, "parts")] : [])),
      h("div", {},
        ...(blocks.length ? [h("h3", {}, "Blocks that were looked at"), h("p", {}, blocks.join(" · "))] : []),
        ...(neighbors.length ? [h("h3", {}, "Training texts like it"), table(["Text", "Alike", "Has the label", "Its labels"], neighbors, "near")] : []))));
  byId("why").hidden = false;
}

/** The text with the words that count: words and runs of words as the model cuts them. */
function marked(text, parts) {
  const weight = new Map(parts.filter((part) => part.name).map((part) => [part.name, part.part]));
  const most = Math.max(1e-9, ...[...weight.values()].map(Math.abs)); // has the full colour
  const longest = Math.max(1, ...[...weight.keys()].map((name) => name.split(" ").length));
  const words = [...text.matchAll(/[\p{L}\p{N}\p{M}_]{2,}/gu)].map((match) => ({ at: match.index, end: match.index + match[0].length, word: match[0].toLowerCase() }));
  const view = h("p", { class: "marked", tabindex: "0", role: "region", "aria-label": "The text with the words that count" });
  let done = 0;
  for (let i = 0; i < words.length; i++) {
    for (let length = Math.min(longest, words.length - i); length > 0; length--) {
      const part = weight.get(words.slice(i, i + length).map((one) => one.word).join(" "));
      if (part === undefined) continue;
      const end = words[i + length - 1].end;
      const said = h("mark", { class: part < 0 ? "against" : "for", title: `${signed(part)} ${part < 0 ? "against" : "for"} the label` }, text.slice(words[i].at, end));
      said.style.setProperty("--strength", `${Math.round(15 + 85 * Math.min(1, Math.abs(part) / most))}%`);
      view.append(text.slice(done, words[i].at), said);
      done = end;
      i += length - 1;
      break;
    }
  }
  view.append(text.slice(done));
  return view;
}

async function offerNames() {
  const words = byId("missing").value.trim();
  if (!words || !model) return;
  try {
    const answer = await of(model.name, `labels?limit=10&q=${encodeURIComponent(words)}`);
    byId("missing-names").replaceChildren(...answer.labels.map((one) => h("option", { value: one.label })));
  } catch { /* names are an offer; the question itself says what is wrong */ }
}

byId("text").addEventListener("input", later(fetchSuggestions, 150));
byId("new-text").addEventListener("click", newText);
byId("more").addEventListener("click", showMore);
byId("threshold").addEventListener("input", draw);
byId("copy-list").addEventListener("click", () => copy(accepted().join("\n"), "a list"));
byId("copy-csv").addEventListener("click", () => copy(csvLine(accepted()), "CSV"));
byId("teach").addEventListener("click", teach);
byId("missing").addEventListener("input", later(offerNames, 150));
byId("why-not").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = byId("missing").value.trim();
  if (name) explain(name);
});
