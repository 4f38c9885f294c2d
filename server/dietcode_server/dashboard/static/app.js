// What every page does: buttons that change something through the API, text that is copied, and what is live.
//
//   <button data-post="/api/v1/jobs/ID/cancel" data-confirm="Cancel this job?" data-then="changed">
//     sends the request; then `data-then` is the event by which htmx refreshes what shows it, or a path to go to.
//   <button data-copy> beside a <pre>, or data-copy="text", copies.
//   <section hx-get="…" hx-trigger="tick from:body, changed from:body"> is asked for every two seconds while
//     the page is seen; an answer that says nothing new leaves the page as it is.

const TICK_MS = 2000;
const SAID_MS = 8000;
let forget = 0;

// A line over the page, which screen readers read out.
export function say(text, isError = false) {
  const said = document.getElementById("said");
  window.clearTimeout(forget);
  said.className = isError ? "error" : "";
  said.textContent = text;
  forget = window.setTimeout(() => (said.textContent = ""), SAID_MS);
}

// The JSON of an answer; an error's one line is thrown.
export async function ask(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("the server does not answer");
  }
  const body = response.status === 204 ? null : await response.json();
  if (!response.ok) throw Object.assign(new Error(body.detail), { problem: body, status: response.status });
  return body;
}

export function tell(name, detail = {}) {
  document.body.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
}

// Calls `draw` now and whenever the colours of the page change.
export function onTheme(draw) {
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
    window.matchMedia(query).addEventListener("change", draw);
  draw();
}

// The value of one of style.css's tokens, as "--accent".
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

async function post(button) {
  if (button.getAttribute("aria-disabled") === "true") {
    say(button.title || "not now", true);
    return;
  }
  if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
  button.setAttribute("aria-disabled", "true"); // it keeps the focus
  try {
    await ask(button.dataset.post, { method: "POST", body: button.dataset.body });
    const then = button.dataset.then ?? "changed";
    if (then.startsWith("/")) window.location.assign(then);
    else tell(then);
  } catch (error) {
    say(error.message, true);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

async function copy(button) {
  const text = button.dataset.copy || button.parentElement.querySelector("pre").textContent;
  try {
    await navigator.clipboard.writeText(text);
    say("copied");
  } catch {
    // Browsers keep the clipboard from pages that came over plain HTTP from elsewhere.
    const shown = button.parentElement.querySelector("pre");
    if (shown) window.getSelection().selectAllChildren(shown);
    say("select the text and copy it: this page may not use the clipboard", true);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button === null) return;
  if (button.dataset.post !== undefined) post(button);
  else if (button.dataset.copy !== undefined) copy(button);
});

// Nothing is asked while nobody looks; what was missed is asked for at once when somebody does.
let signedOut = false;
function tick() {
  if (!document.hidden && !signedOut) tell("tick");
}
window.setInterval(tick, TICK_MS);
document.addEventListener("visibilitychange", tick);

// htmx: an answer that is the same as the last one changes nothing, so that selections, titles and what a
// screen reader reads stay; one that is late never takes the place of a newer one.
const shown = new Map(); // by id: what is replaced is another element afterwards
let hadFocus = false;
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, xhr } = event.detail;
  hadFocus = target.contains(document.activeElement);
  if (shown.get(target.id) === xhr.responseText) event.detail.shouldSwap = false;
  else if (target.id && xhr.status === 200) shown.set(target.id, xhr.responseText);
});
document.addEventListener("htmx:afterSwap", () => {
  localise();
  // The button that had the focus may be gone: whoever uses the keyboard goes on from the top of the content.
  if (hadFocus && document.activeElement === document.body) document.getElementById("main").focus();
});

// What somebody has unfolded stays so when htmx brings it anew.
const unfolded = new Set();
document.addEventListener(
  "toggle",
  ({ target }) => {
    if (!target.isConnected || !target.id) return;
    if (target.open) unfolded.add(target.id);
    else unfolded.delete(target.id);
  },
  true,
);
for (const name of ["htmx:afterSwap", "htmx:oobAfterSwap"]) {
  document.addEventListener(name, () => {
    for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
  });
}

// The page comes with times in UTC; here they become the reader's own, and the title has both.
const two = (number) => String(number).padStart(2, "0");
const inZone = (at) =>
  `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
export function localise() {
  for (const time of document.querySelectorAll("time[datetime]:not([data-local])")) {
    const at = new Date(time.dateTime);
    time.dataset.local = "";
    const shown = time.textContent.trim();
    // "3 min ago" is the same everywhere; a date or a clock is not.
    if (/^\d{4}-\d\d-\d\d/.test(shown)) time.textContent = `${inZone(at)}`;
    else if (/^\d\d:\d\d:\d\d$/.test(shown)) time.textContent = inZone(at).slice(11);
    time.title = `${at.toLocaleString()} here; ${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  }
  for (const option of document.querySelectorAll("option[data-at]")) {
    option.textContent = `${option.dataset.label}, ${inZone(new Date(option.dataset.at))}`;
  }
}
localise();

// An answer that is an error says so once, in its own words.
document.addEventListener("htmx:responseError", (event) => {
  const { xhr } = event.detail;
  signedOut = xhr.status === 401; // its token was revoked or has expired
  try {
    say(signedOut ? "the server wants a token again: reload the page" : JSON.parse(xhr.responseText).detail, true);
  } catch {
    lost();
  }
});

let silent = false;
function lost() {
  if (!silent) say("the server does not answer; what is shown may be old", true);
  silent = true;
}
document.addEventListener("htmx:sendError", lost);
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) silent = false;
});
