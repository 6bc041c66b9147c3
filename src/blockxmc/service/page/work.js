// The texts of this tab and the labels that were accepted for each: kept over a reload, taken home as one CSV.
const KEPT = "blockxmc-work";

let records = [{ text: "", labels: [] }];
let at = 0;
const undone = []; // {at, labels}: what to go back to
try {
  const kept = JSON.parse(sessionStorage.getItem(KEPT));
  if (kept?.records?.length) ({ records, at } = kept);
} catch { /* begins anew */ }

/** Keeps all of it; a browser that has no room for it goes on without. */
function keep() {
  try { sessionStorage.setItem(KEPT, JSON.stringify({ records, at })); } catch { /* see above */ }
}

export const current = () => records[at];
export const place = () => ({ at, count: records.length, labelled: records.filter((one) => one.labels.length).length });
export const canUndo = () => undone.length > 0;

export function setText(text) {
  current().text = text;
  keep();
}

/** Accepts a label, or takes it back. */
export function toggle(label) {
  const { labels } = current();
  undone.push({ at, labels });
  current().labels = labels.includes(label) ? labels.filter((one) => one !== label) : [...labels, label];
  keep();
}

export function undo() {
  const last = undone.pop();
  if (!last) return;
  at = last.at;
  current().labels = last.labels;
  keep();
}

/** To the next text or the one before; behind the last one there is an empty one. */
export function move(step) {
  if (at + step < 0 || (step > 0 && !current().text.trim())) return false;
  at += step;
  if (at === records.length) records.push({ text: "", labels: [] });
  keep();
  return true;
}

/** More texts behind those that are there; the first of them is the current one. */
export function add(texts) {
  records = records.filter((one) => one.text.trim());
  at = records.length;
  records.push(...texts.map(({ id, text }) => ({ id, text, labels: [] })));
  keep();
}

export function startOver() {
  records = [{ text: "", labels: [] }];
  at = 0;
  undone.length = 0;
  keep();
}

export const labelled = () => records.filter((one) => one.labels.length && one.text.trim());
