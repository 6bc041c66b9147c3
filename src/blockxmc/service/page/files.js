// A file of texts: read here, answered in batches, offered for download.
import { of } from "./api.js";
import { byId, download, downloadLabels, h, percent, shortened, trouble } from "./dom.js";

const BATCH = 100;
const BATCH_CHARS = 1_000_000;
const SHOWN = 200;
let model = null;
let table = null; // the file: columns, rows, and what is to be said of it
let answered = []; // {id, text, suggestions}
let stopping = null;
let checked = null; // who takes texts to look at one by one

export function chosen(card) {
  model = card;
  stopping?.abort();
}

export function onChecked(take) {
  checked = take;
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

/** The characters of a file: UTF-8, or what spreadsheets write where they do not write UTF-8. */
function decoded(bytes, name) {
  const start = [...new Uint8Array(bytes, 0, Math.min(4, bytes.byteLength))], [first, second] = start;
  // A zip or an OLE file, as .xlsx, .ods and .xls are.
  if (/\.(xlsx?|ods|numbers)$/i.test(name) || ["80,75,3,4", "208,207,17,224"].includes(String(start))) {
    throw new Error(`${name} is no text: a spreadsheet can be read here once it is saved as CSV UTF-8 (in Excel: File, Save as, "CSV UTF-8").`);
  }
  if (first === 0xff && second === 0xfe) return { content: new TextDecoder("utf-16le").decode(bytes), note: "" };
  if (new Uint8Array(bytes).subarray(0, 1 << 16).includes(0)) throw new Error(`${name} is no text file.`);
  try {
    return { content: new TextDecoder("utf-8", { fatal: true }).decode(bytes), note: "" };
  } catch {
    return { content: new TextDecoder("windows-1252").decode(bytes), note: " It is not UTF-8 and was read as Windows-1252." };
  }
}

/** What stands most often between the names of columns. */
function separatorOf(content) {
  const line = content.split(/[\r\n]/, 1)[0].replace(/"[^"]*"/g, "");
  const count = (sign) => line.split(sign).length;
  return [",", ";", "\t"].reduce((best, sign) => (count(sign) > count(best) ? sign : best));
}

/** A file as records: lists of cells, and the names of their columns. */
function readTable(name, content) {
  if (/\.(jsonl|ndjson)$/i.test(name) || content.trimStart().startsWith("{")) return readJsonl(content);
  if (/\.txt$/i.test(name)) return { columns: ["text"], rows: content.split(/\r?\n/).filter((line) => line.trim()).map((line) => [line]) };
  const separator = separatorOf(content), rows = parseCsv(content, separator);
  const named = rows[0]?.some((cell) => cell.trim().toLowerCase() === "text");
  // Annif's TSV has no names of columns: text, a tab, subjects.
  if (!named && (separator === "\t" || /\.tsv$/i.test(name))) return { columns: (rows[0] ?? []).map((_, i) => `column ${i + 1}`), rows };
  return { columns: (rows[0] ?? []).map((cell) => cell.trim()), rows: rows.slice(1) };
}

function readJsonl(content) {
  const records = content.split(/\r?\n/).map((line, i) => {
    if (!line.trim()) return null;
    try { return JSON.parse(line); } catch { throw new Error(`Line ${i + 1} is not valid JSON.`); }
  }).filter((record) => record !== null);
  if (typeof records[0] === "string") return { columns: ["text"], rows: records.map((text) => [String(text)]) };
  const columns = Object.keys(records[0] ?? {}).filter((key) => ["string", "number"].includes(typeof records[0][key]));
  return { columns, rows: records.map((record) => columns.map((key) => String(record?.[key] ?? ""))) };
}

/** Where the text is: the column of this name, or the one with the longest cells. */
function textColumn({ columns, rows }) {
  const named = columns.findIndex((name) => name.toLowerCase() === "text");
  if (named >= 0) return named;
  const sizes = columns.map((_, i) => rows.slice(0, 100).reduce((sum, row) => sum + (row[i] ?? "").length, 0));
  return Math.max(0, sizes.indexOf(Math.max(...sizes)));
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

/** Nothing of an earlier file stays. */
function clear() {
  stopping?.abort();
  table = null;
  answered = [];
  byId("answers").tBodies[0].replaceChildren();
  byId("file-state").textContent = "";
  for (const id of ["column-control", "progress", "stop", "answers"]) byId(id).hidden = true;
  for (const id of ["one-by-one", "download-csv", "download-jsonl"]) byId(id).disabled = true;
}

async function read(file) {
  clear();
  try {
    const { content, note } = decoded(await file.arrayBuffer(), file.name);
    table = { ...readTable(file.name, content), note, name: file.name };
    if (!table.rows.length || !table.columns.length) throw new Error(`${file.name} holds no text.`);
  } catch (error) {
    table = null;
    return trouble(error.message);
  }
  byId("column").replaceChildren(...table.columns.map((name, i) => h("option", { value: i }, name || `column ${i + 1}`)));
  byId("column").value = textColumn(table);
  byId("column-control").hidden = table.columns.length < 2;
  answer();
}

async function answer() {
  stopping?.abort();
  const mine = (stopping = new AbortController());
  const body = byId("answers").tBodies[0];
  body.replaceChildren();
  answered = [];
  trouble();
  const place = Number(byId("column").value), ids = table.columns.findIndex((name) => name.toLowerCase() === "id");
  const texts = table.rows.map((row) => row[place] ?? "");
  try {
    for (const id of ["progress", "stop", "answers"]) byId(id).hidden = false;
    byId("progress").value = 0;
    const k = Math.min(100, Math.max(1, Number(byId("file-k").value) || 5));
    for (const batch of batches(texts)) {
      const found = await of(model.name, "suggest", { texts: batch, k, threshold: model.probabilities ? "f1" : null }, mine.signal);
      mine.signal.throwIfAborted();
      batch.forEach((text, i) => answered.push({ id: table.rows[answered.length][ids], text, ...found.results[i] }));
      body.append(...answered.slice(body.rows.length, SHOWN).map(row));
      byId("progress").value = answered.length / texts.length;
      byId("file-state").textContent = `${answered.length} of ${texts.length} texts`;
    }
    const more = answered.length > SHOWN ? `; the first ${SHOWN} are shown` : "";
    byId("file-state").textContent = `Done: ${answered.length} texts of ${table.name}${more}.${table.note}`;
  } catch (error) {
    if (mine !== stopping) return; // another file has taken its place
    if (error.name !== "AbortError") trouble(error.message);
    byId("file-state").textContent = answered.length ? `Stopped after ${answered.length} texts.` : "";
  }
  byId("stop").hidden = byId("progress").hidden = true;
  for (const id of ["one-by-one", "download-csv", "download-jsonl"]) byId(id).disabled = !answered.length;
}

function row({ text, suggestions, known }) {
  const number = (score) => (model.probabilities ? percent(score) : score.toFixed(2));
  const labels = suggestions.map((one) => h("span", {}, `${one.label} `, h("i", {}, number(one.score))));
  return h("tr", {}, h("td", {}, shortened(text)), h("td", {}, ...(labels.length ? labels : [!text.trim() ? "no text" : known ? "none likely" : "no known word"])));
}

function downloadCsv() {
  downloadLabels("suggestions.csv", answered.map(({ id, text, suggestions }) => ({ id, text, labels: suggestions.map((one) => one.label) })));
}

function downloadJsonl() {
  const rows = answered.map(({ id, text, suggestions }) =>
    JSON.stringify({ id, text, labels: suggestions.map((one) => one.label), scores: suggestions.map((one) => one.score) }));
  download("suggestions.jsonl", rows, "application/x-ndjson");
}

const drop = byId("drop");
byId("file").addEventListener("change", (event) => {
  if (event.target.files[0]) read(event.target.files[0]);
  event.target.value = ""; // the same file once more is a change, too
});
byId("one-by-one").addEventListener("click", () => checked(answered.filter(({ text }) => text.trim())));
byId("column").addEventListener("change", answer);
byId("file-k").addEventListener("change", () => table && answer());
drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
});
byId("stop").addEventListener("click", () => stopping?.abort());
byId("download-csv").addEventListener("click", downloadCsv);
byId("download-jsonl").addEventListener("click", downloadJsonl);
