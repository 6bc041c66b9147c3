// The page: choice of the model, and one module per tab.
import { models } from "./api.js";
import { byId, h, trouble } from "./dom.js";
import * as suggest from "./suggest.js";
import * as files from "./files.js";
import * as explore from "./explore.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const modules = { suggest, files, explore };
let cards = [];
let model = null;

function show(tab, focus = false) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  if (model) modules[tab.getAttribute("aria-controls")].shown?.(model);
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => show(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) show(tabs[(i + step + tabs.length) % tabs.length], true);
  });
});

function choose(name, updates) {
  model = { ...cards.find((card) => card.name === name), updates };
  const right = model.held_out["P@1"];
  byId("about").textContent = `${model.labels.toLocaleString("en")} labels, learnt from ${model.training_rows.toLocaleString("en")} ` +
    `${model.takes_text ? "texts" : "rows"}` + (right == null ? "" : `; the first suggestion is right for about ${Math.round(100 * right)} of 100`);
  trouble(model.takes_text ? "" : "This model was trained on features, not on texts: ask it over HTTP.");
  for (const module of Object.values(modules)) module.chosen(model);
  const tab = tabs.find((other) => other.getAttribute("aria-selected") === "true");
  modules[tab.getAttribute("aria-controls")].shown?.(model);
}

async function start() {
  const wanted = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
  if (wanted) show(wanted);
  try {
    const answer = await models();
    cards = answer.models;
    byId("model").append(...cards.map((card) => h("option", { value: card.name }, card.name)));
    byId("model").addEventListener("change", (event) => choose(event.target.value, answer.updates));
    choose(cards[0].name, answer.updates);
  } catch (error) {
    trouble(error.message);
  }
}

start();
