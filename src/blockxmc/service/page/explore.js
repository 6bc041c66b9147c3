// Looking into a model: labels, blocks, and the map of both.
import { of } from "./api.js";
import { byId, h, later, table, trouble } from "./dom.js";

let model = null;
let loaded = null; // the version whose blocks are on the page
let map = null;
let view = { x: 0, y: 0, width: 1, height: 1 }; // the part of the map that is seen
const canvas = byId("map");

export function chosen(card) {
  model = card;
  loaded = null;
  map = null;
  for (const id of ["found", "label-card", "block-card"]) byId(id).replaceChildren();
  byId("find").value = "";
}

export async function shown() {
  if (!model || loaded === model.version) return;
  loaded = model.version;
  search();
  try {
    if (model.blocks == null) return trouble("This model has no blocks.");
    const { blocks } = await of(model.name, "blocks");
    byId("blocks").tBodies[0].replaceChildren(...blocks.map((block) => h("tr", {},
      h("td", {}, h("button", { class: "link", "aria-label": `Block ${block.block}`, onclick: () => showBlock(block.block) }, String(block.block))),
      h("td", { class: "number" }, block.rows.toLocaleString("en")), h("td", { class: "number" }, block.labels.toLocaleString("en")),
      h("td", {}, block.typical.join(" · ")))));
    map = await of(model.name, "map");
    seeAll();
  } catch (error) {
    trouble(error.message);
  }
}

const names = (labels) => labels.map((one) => [
  h("button", { class: "link", onclick: () => showLabel(one.id) }, String(one.label)), one.training_rows]);

async function search() {
  const words = byId("find").value.trim();
  if (!model) return;
  try {
    const { labels } = await of(model.name, `labels?limit=${words ? 20 : 8}&q=${encodeURIComponent(words)}`);
    const rows = labels.map((one) => h("li", {}, h("button", { class: "link", onclick: () => showLabel(one.id) }, String(one.label)),
      ` ${one.training_rows.toLocaleString("en")} texts`));
    byId("found-title").textContent = words ? "Labels found" : "Most frequent labels";
    byId("found").replaceChildren(...(rows.length ? rows : [h("li", {}, "No label has these words.")]));
  } catch (error) {
    trouble(error.message);
  }
}

async function showLabel(id) {
  try {
    const one = await of(model.name, `labels/${id}`);
    const together = one.co_labels?.map((other) => [
      h("button", { class: "link", onclick: () => showLabel(other.id) }, String(other.label)), other.together, other.training_rows]);
    const blocks = one.blocks.slice(0, 30).flatMap((block) => [h("button", { class: "link", onclick: () => showBlock(block) }, String(block)), " "]);
    byId("label-card").replaceChildren(h("h2", {}, String(one.label)),
      h("p", {}, `${one.training_rows.toLocaleString("en")} training texts have it.`),
      h("p", {}, one.blocks.length ? `Blocks that hold it (${one.blocks.length}): ` : "No block holds it.", ...blocks),
      ...(together == null ? [h("p", { class: "quiet" }, "The model keeps no training rows: labels that come with it are not known.")]
        : together.length ? [h("h3", {}, "Comes with"), table(["Label", "Together", "In all"], together)]
        : [h("p", {}, "It comes alone.")]));
  } catch (error) {
    trouble(error.message);
  }
}

async function showBlock(number) {
  try {
    const block = await of(model.name, `blocks/${number}`);
    const more = block.n_labels > block.labels.length ? `, the most frequent ${block.labels.length} are listed` : "";
    byId("block-card").replaceChildren(h("h2", {}, `Block ${number}`),
      h("p", {}, `${block.rows.toLocaleString("en")} training texts, ${block.n_labels.toLocaleString("en")} labels${more}`),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Labels of block ${number}` }, table(["Label", "Texts"], names(block.labels))));
  } catch (error) {
    trouble(error.message);
  }
}

// ---- the map ----
function seeAll() {
  view = { x: 0, y: 0, width: map?.columns.length || 1, height: map?.rows || 1 };
  draw();
}

function draw() {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  if (!map || !box.width) return;
  canvas.width = box.width * ratio;
  canvas.height = box.height * ratio;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const sx = canvas.width / view.width, sy = canvas.height / view.height;
  pen.fillStyle = style.getPropertyValue("--strong");
  map.label_clusters.forEach((runs, block) => {
    const top = (map.offsets[block] - view.y) * sy, height = (map.offsets[block + 1] - map.offsets[block]) * sy;
    if (top > canvas.height || top + height < 0) return;
    for (const [first, last] of runs) pen.fillRect((first - view.x) * sx, top, Math.max(1, (last - first + 1) * sx), Math.max(1, height));
  });
  pen.fillStyle = style.getPropertyValue("--ink");
  const [columns, rows] = map.dots, width = Math.max(1.2, Math.min(sx, 8)), height = Math.max(1.2, Math.min(sy, 8));
  for (let i = 0; i < columns.length; i++) {
    pen.fillRect((columns[i] - view.x) * sx, (rows[i] - view.y) * sy, width, height);
  }
  byId("map-text").textContent = `${map.label_clusters.length} blocks, ${map.columns.length.toLocaleString("en")} labels` +
    (columns.length ? "" : "; the model keeps no training rows, so there are no dots");
}

function zoom(factor, fx = 0.5, fy = 0.5) {
  if (!map) return;
  const width = Math.min(map.columns.length, Math.max(10, view.width * factor));
  const height = Math.min(map.rows, Math.max(10, view.height * factor));
  move(view.x + fx * (view.width - width), view.y + fy * (view.height - height), width, height);
}

function move(x, y, width = view.width, height = view.height) {
  if (!map) return;
  const inside = (value, most) => Math.min(Math.max(0, value), Math.max(0, most));
  view = { x: inside(x, map.columns.length - width), y: inside(y, map.rows - height), width, height };
  draw();
}

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  drag = { x: event.offsetX, y: event.offsetY, view: { ...view }, moved: false };
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
  drag.moved ||= Math.hypot(dx, dy) > 4;
  if (drag.moved) move(drag.view.x - (dx / canvas.clientWidth) * view.width, drag.view.y - (dy / canvas.clientHeight) * view.height);
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved && map) {
    const row = view.y + (event.offsetY / canvas.clientHeight) * view.height;
    const block = map.offsets.findLastIndex((offset) => offset <= row);
    if (block >= 0 && block < map.label_clusters.length) showBlock(block);
  }
  drag = null;
});
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight);
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
  if (steps) move(view.x + steps[0] * view.width, view.y + steps[1] * view.height);
  else if (event.key === "+") zoom(0.7);
  else if (event.key === "-") zoom(1.4);
  else if (event.key === "0") seeAll();
  else return;
  event.preventDefault();
});
byId("zoom-in").addEventListener("click", () => zoom(0.7));
byId("zoom-out").addEventListener("click", () => zoom(1.4));
byId("zoom-all").addEventListener("click", seeAll);
byId("find").addEventListener("input", later(search, 150));
window.addEventListener("resize", later(draw, 100));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
