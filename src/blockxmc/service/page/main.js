// The page: choice of the model, its address, and one module per tab.
import { models } from "./api.js";
import { byId, h, trouble } from "./dom.js";
import * as suggest from "./suggest.js";
import * as files from "./files.js";
import * as explore from "./explore.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const modules = { suggest, files, explore };
const address = new URLSearchParams(location.hash.slice(1)); // tab, model and text of a shared address
let cards = [];
let model = null;

export function show(name, focus = false) {
  const tab = byId(`tab-${name}`);
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  history.replaceState(null, "", `#tab=${name}`);
  if (model) modules[name].shown?.(model);
}

tabs.forEach((tab, i) => {
  const name = (other) => other.getAttribute("aria-controls");
  tab.addEventListener("click", () => show(name(tab)));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) show(name(tabs[(i + step + tabs.length) % tabs.length]), true);
  });
});

function choose(name, updates, text) {
  model = { ...cards.find((card) => card.name === name), updates };
  const right = model.held_out["P@1"], number = (value) => value.toLocaleString("en");
  byId("about").textContent = `${number(model.labels)} labels, learnt from ${number(model.training_rows)} ` +
    `${model.takes_text ? "texts" : "rows"}` + (right == null ? "." : `. The first suggestion is right for about ${Math.round(100 * right)} of 100 texts.`);
  trouble(model.takes_text ? "" : "This model was trained on features, not on texts: ask it over HTTP.");
  suggest.chosen(model, text);
  files.chosen(model);
  explore.chosen(model);
  const tab = tabs.find((other) => other.getAttribute("aria-selected") === "true");
  modules[tab.getAttribute("aria-controls")].shown?.(model);
}

function showKeys() {
  if (!byId("keys").open) byId("keys").showModal();
}

byId("help").addEventListener("click", showKeys);
document.addEventListener("keydown", (event) => {
  if (event.key === "?" && !event.target.closest("input, textarea, select, dialog")) showKeys();
});
files.onChecked((texts) => {
  suggest.addTexts(texts);
  show("suggest");
});

async function start() {
  if (modules[address.get("tab")]) show(address.get("tab"));
  try {
    const answer = await models();
    cards = answer.models;
    byId("model").append(...cards.map((card) => h("option", { value: card.name }, card.name)));
    byId("model-control").hidden = cards.length < 2;
    byId("model").addEventListener("change", (event) => choose(event.target.value, answer.updates));
    const wanted = cards.find((card) => card.name === address.get("model")) ?? cards[0];
    byId("model").value = wanted.name;
    choose(wanted.name, answer.updates, address.get("text") ?? undefined);
  } catch (error) {
    trouble(error.message);
  }
}

start();
