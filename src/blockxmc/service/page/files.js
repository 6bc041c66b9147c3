// A file of texts: read here, answered in batches, offered for download.
import { of } from "./api.js";
import { byId, csvLine, h, percent, trouble } from "./dom.js";

const BATCH = 100;
const BATCH_CHARS = 1_000_000;
const SHOWN = 200;
let model = null;
let answered = []; // {text, suggestions}
let stopping = null;

export function chosen(card) {
  model = card;
  stopping?.abort();
}

/** Rows of cells; quotes as in RFC 4180. */
export function parseCsv(content, separator) {
  const rows = [[]];
  let cell = "", quoted = false;
  for (let i = 0; i < content.length; i++) {
    const c = content[i];
    if (quoted) {
      if (c === '"' && content[i + 1] === '"') { cell += '"'; i++; }
      else if (c === '"') quoted = false;
      else cell += c;
    } else if (c === '"' && cell === "") quoted = true;
    else if (c === separator) { rows.at(-1).push(cell); cell = ""; }
    else if (c === "\n" || c === "\r") {
      if (c === "\r" && content[i + 1] === "\n") i++;
      rows.at(-1).push(cell);
      cell = "";
      rows.push([]);
    } else cell += c;
  }
  rows.at(-1).push(cell);
  return rows.filter((row) => row.length > 1 || row[0] !== "");
}

function textsOf(name, content) {
  if (/\.(jsonl|ndjson)$/i.test(name) || content.trimStart().startsWith("{")) {
    return content.split(/\r?\n/).filter((line) => line.trim()).map((line, i) => {
      let value;
      try { value = JSON.parse(line); } catch { throw new Error(`Line ${i + 1} is not valid JSON.`); }
      const text = typeof value === "string" ? value : value?.text;
      if (typeof text !== "string") throw new Error(`Line ${i + 1} has no "text".`);
      return text;
    });
  }
  if (/\.txt$/i.test(name)) return content.split(/\r?\n/).filter((line) => line.trim());
  const rows = parseCsv(content, /\.tsv$/i.test(name) ? "\t" : ",");
  const column = rows.length ? rows[0].findIndex((cell) => cell.trim().toLowerCase() === "text") : -1;
  return (column < 0 ? rows : rows.slice(1)).map((row) => row[Math.max(column, 0)] ?? "");
}

function* batches(texts) {
  let batch = [], chars = 0;
  for (const text of texts) {
    if (batch.length && (batch.length === BATCH || chars + text.length > BATCH_CHARS)) {
      yield batch;
      batch = [];
      chars = 0;
    }
    batch.push(text);
    chars += text.length;
  }
  if (batch.length) yield batch;
}

async function answer(file) {
  stopping?.abort();
  const mine = (stopping = new AbortController());
  const body = byId("answers").tBodies[0];
  body.replaceChildren();
  answered = [];
  trouble();
  try {
    const texts = textsOf(file.name, (await file.text()).replace(/^\uFEFF/, ""));
    if (!texts.length) throw new Error(`${file.name} holds no text.`);
    for (const id of ["progress", "stop", "answers"]) byId(id).hidden = false;
    byId("progress").value = 0;
    const k = Math.min(100, Math.max(1, Number(byId("file-k").value) || 5));
    for (const batch of batches(texts)) {
      const found = await of(model.name, "suggest", { texts: batch, k, threshold: model.probabilities ? "f1" : null }, mine.signal);
      batch.forEach((text, i) => answered.push({ text, suggestions: found.results[i].suggestions }));
      body.append(...answered.slice(body.rows.length, SHOWN).map(row));
      byId("progress").value = answered.length / texts.length;
      byId("file-state").textContent = `${answered.length} of ${texts.length} texts`;
    }
    const more = answered.length > SHOWN ? `; the first ${SHOWN} are shown` : "";
    byId("file-state").textContent = `Done: ${answered.length} texts${more}.`;
  } catch (error) {
    if (error.name !== "AbortError") trouble(error.message);
    byId("file-state").textContent = answered.length ? `Stopped after ${answered.length} texts.` : "";
  }
  byId("stop").hidden = true;
  for (const id of ["download-csv", "download-jsonl"]) byId(id).disabled = !answered.length;
}

function row({ text, suggestions }) {
  const number = (score) => (model.probabilities ? percent(score) : score.toFixed(2));
  const labels = suggestions.map((one) => `${one.label} (${number(one.score)})`).join(", ");
  return h("tr", {}, h("td", {}, text.length > 160 ? `${text.slice(0, 160)} …` : text), h("td", {}, labels || "none likely"));
}

function download(name, lines, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function downloadCsv() {
  const rows = answered.flatMap(({ text, suggestions }, i) =>
    suggestions.map((one, rank) => csvLine([i + 1, text, rank + 1, one.label, one.score])));
  download("suggestions.csv", ["row,text,rank,label,score", ...rows], "text/csv");
}

function downloadJsonl() {
  const rows = answered.map(({ text, suggestions }) =>
    JSON.stringify({ text, labels: suggestions.map((one) => one.label), scores: suggestions.map((one) => one.score) }));
  download("suggestions.jsonl", rows, "application/x-ndjson");
}

const drop = byId("drop");
byId("file").addEventListener("change", (event) => event.target.files[0] && answer(event.target.files[0]));
drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  if (event.dataTransfer.files[0]) answer(event.dataTransfer.files[0]);
});
byId("stop").addEventListener("click", () => stopping?.abort());
byId("download-csv").addEventListener("click", downloadCsv);
byId("download-jsonl").addEventListener("click", downloadJsonl);
