// Small helpers for the page.
export const byId = (id) => document.getElementById(id);

/** An element: h("button", {class: "x", onclick: f}, "text", child...). Text is never read as HTML. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
export const signed = (number) => (number < 0 ? "−" : "+") + Math.abs(number).toFixed(3);
export const shortened = (text, most = 160) => (text.length > most ? `${text.slice(0, most)} …` : text);

/** Calls f when nothing has happened for a while. */
export function later(f, milliseconds) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...args), milliseconds);
  };
}

export function table(headings, rows, kind = null) {
  const cell = (value) => (typeof value === "number" ? h("td", { class: "number" }, value.toLocaleString("en")) : h("td", {}, value));
  return h("table", { class: kind },
    h("thead", {}, h("tr", {}, ...headings.map((text, i) => h("th", { scope: "col", class: typeof rows[0]?.[i] === "number" ? "number" : null }, text)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell)))));
}

/** Says what went wrong above everything else; without text: nothing did. */
export function trouble(text = "") {
  byId("trouble").hidden = !text;
  byId("trouble").textContent = text;
}

export function download(name, lines, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const quoted = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
// A spreadsheet would run a text that begins like a formula.
const harmless = (value) => (/^[=+\-@\t\r]/.test(value) ? `'${value}` : value);

/** Texts and their labels as `blockxmc train` reads them; its mark at the beginning tells spreadsheets that it is UTF-8. */
export function downloadLabels(name, records) {
  // Names with a semicolon are written as lists, in all rows alike: so they are read.
  const listed = records.some((one) => one.labels.some((label) => /;|^\[/.test(label)));
  const rows = records.map(({ id, text, labels }, i) =>
    [String(id ?? i + 1), harmless(text), listed ? JSON.stringify(labels.map(String)) : labels.join(";")].map(quoted).join(","));
  download(name, ["\ufeffid,text,labels", ...rows], "text/csv");
}
