
"use strict";
const raw = JSON.parse(document.getElementById("cells").textContent).cells;

// Numbers sort by value, highest first at the first click; places without one stay at the end.
function sortBy(head) {
  const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
  const numeric = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  const descending = before ? before === "ascending" : numeric;
  const value = row => numeric ? parseFloat(row.cells[column].dataset.value ?? "NaN") : row.cells[column].textContent;
  const rows = Array.from(body.rows, row => ({ row, value: value(row) }));
  rows.sort((a, b) => {
    if (!numeric) return (descending ? -1 : 1) * a.value.localeCompare(b.value);
    if (isNaN(a.value) || isNaN(b.value)) return isNaN(a.value) - isNaN(b.value);
    return descending ? b.value - a.value : a.value - b.value;
  });
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  for (const { row } of rows) { row.classList.remove("start"); body.append(row); }
}

function showRaw(cell) {
  const dialog = document.getElementById("raw");
  dialog.querySelector("h2").textContent = cell;
  dialog.querySelector("pre").textContent = JSON.stringify(raw[cell], null, 1);
  dialog.showModal();
}

document.addEventListener("click", event => {
  const head = event.target.closest("table.sortable th");
  if (head) sortBy(head);
  const link = event.target.closest("a[data-cell]");
  if (link) { event.preventDefault(); showRaw(link.dataset.cell); }
  if (event.target.id === "raw") event.target.close();
});
