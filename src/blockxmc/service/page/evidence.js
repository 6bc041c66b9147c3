// Why a label: the words that count, texts like it, and the numbers for who asks.
import { h, percent, signed, table } from "./dom.js";

const SHOWN = 8; // words that are listed
const MARKED = 15; // words that are marked, those that count most
const NEAR = 5; // texts like it, those with the label first
// Parts of a score as people say them.
const TERMS = {
  "probability of its blocks": "how well the text fits the texts around the label",
  "training rows like it": "texts like it",
  "reranker": "comparison with the other best labels",
  "offset of all labels": "the same for all labels",
};

/** The evidence for one label as an element. */
export function evidence(text, why) {
  const parts = why.features.filter((feature) => feature.part).slice(0, MARKED);
  return h("article", { id: "why", "aria-live": "polite" },
    h("h3", {}, `Why ${why.label}?`),
    h("p", {}, fate(why)),
    ...(parts.length ? [marked(text, parts), words(parts.slice(0, SHOWN))] : []),
    ...(why.neighbors.length ? [h("h3", {}, "Texts like it"), neighbors(why)] : []),
    ...(why.score == null ? [] : [h("details", {}, h("summary", {}, "Details"), numbers(why, parts))]));
}

function fate(why) {
  const chance = why.probability == null ? "" : ` (probability ${percent(why.probability)})`;
  if (why.fate.endsWith("no training row has it") || why.fate.endsWith("it has no training row")) return "No training text has this label.";
  if (why.rank == null) return "Not considered: texts of this kind did not have it in training.";
  if (why.fate.startsWith("suggested")) return `In place ${why.rank} for this text${chance}.`;
  return `Considered, and left behind in place ${why.rank}${chance}.`;
}

function words(parts) {
  const most = Math.max(1e-9, ...parts.map((part) => Math.abs(part.part)));
  return h("ul", { class: "words", "aria-label": "The words that count most" }, ...parts.map((part) => {
    const bar = h("span", { class: part.part < 0 ? "bar against" : "bar", role: "img", "aria-label": part.part < 0 ? "against the label" : "for the label" });
    bar.style.width = `${100 * Math.abs(part.part) / most}%`;
    return h("li", {}, h("span", {}, part.name ?? `feature ${part.feature}`), bar);
  }));
}

function neighbors(why) {
  const first = why.neighbors.toSorted((a, b) => b.has_label - a.has_label).slice(0, NEAR);
  return h("ul", { class: "near" }, ...first.map((near) => {
    const labels = near.labels.flatMap((label) => [" · ", label === why.label ? h("strong", {}, String(label)) : String(label)]).slice(1);
    const title = h("span", { class: "title" }, near.title ?? "Training text"), place = near.id ?? `row ${near.row + 1}`;
    return h("li", {},
      near.text ? h("details", {}, h("summary", {}, title), h("p", { class: "title" }, near.text)) : title,
      h("span", { class: "quiet" }, ` ${place} · ${percent(near.similarity)} alike`),
      h("br"), ...labels);
  }));
}

function numbers(why, parts) {
  const others = why.features.slice(parts.length).reduce((sum, feature) => sum + feature.part, why.other_features);
  return table(["What counts", "Part of the score"], [
    ...parts.map((feature) => [feature.name ?? `feature ${feature.feature}`, signed(feature.part)]),
    ...(others ? [["other words", signed(others)]] : []),
    ["how common the label is", signed(why.constant)],
    ...Object.entries(why.terms).map(([name, part]) => [TERMS[name] ?? name, signed(part)]),
    ["score", why.score.toFixed(3).replace("-", "−")],
  ], "parts");
}

/** The text with the words that count: words and runs of words as the model cuts them. */
function marked(text, parts) {
  const weight = new Map(parts.filter((part) => part.name).map((part) => [part.name, part.part]));
  const most = Math.max(1e-9, ...[...weight.values()].map(Math.abs)); // has the full colour
  const longest = Math.max(1, ...[...weight.keys()].map((name) => name.split(" ").length));
  const found = [...text.matchAll(/[\p{L}\p{N}\p{M}_]{2,}/gu)].map((match) => ({ at: match.index, end: match.index + match[0].length, word: match[0].toLowerCase() }));
  const view = h("p", { class: "marked", tabindex: "0", role: "region", "aria-label": "The text with the words that count" });
  let done = 0;
  for (let i = 0; i < found.length; i++) {
    for (let length = Math.min(longest, found.length - i); length > 0; length--) {
      const part = weight.get(found.slice(i, i + length).map((one) => one.word).join(" "));
      if (part === undefined) continue;
      const end = found[i + length - 1].end;
      const said = h("mark", { class: part < 0 ? "against" : "for", title: part < 0 ? "against the label" : "for the label" }, text.slice(found[i].at, end));
      said.style.setProperty("--strength", `${Math.round(20 + 80 * Math.min(1, Math.abs(part) / most))}%`);
      view.append(text.slice(done, found[i].at), said);
      done = end;
      i += length - 1;
      break;
    }
  }
  view.append(text.slice(done));
  return view;
}
