// Talking to the service that this page came from.
import { byId } from "./dom.js";

const TOKEN = "blockxmc-token";

function askForToken() {
  const dialog = byId("token-dialog");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(TOKEN, byId("token").value);
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

/** The JSON answer to a request; an Error with the service's own words where there is none. */
export async function ask(path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service does not answer. Is it still running?");
  }
  if (response.status === 401) {
    await askForToken();
    return ask(path, body, signal);
  }
  if (response.status === 503) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * (Number(response.headers.get("retry-after")) || 1)));
    if (!signal?.aborted) return ask(path, body, signal);
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.detail ?? `The service answered ${response.status}.`);
  return answer;
}

export const models = () => ask("v1/models");
export const of = (model, path, body, signal) => ask(`v1/models/${encodeURIComponent(model)}/${path}`, body, signal);
