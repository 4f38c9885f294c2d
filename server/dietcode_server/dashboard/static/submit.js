// The page that submits a workload: checks what is typed, keeps it over a reload, and sends it.

import { ask } from "./app.js";
import { Editor } from "./editor.js";

const TYPING_MS = 300; // of rest before a text is checked
const SETTLED_MS = 600; // more, before its target is looked up

const form = document.getElementById("submit");
const parts = Object.fromEntries(
  ["checking", "problems", "summary", "send", "send-why", "refused", "restored", "discard", "priority", "deadline", "deadline-unit"].map(
    (name) => [name, document.getElementById(name)],
  ),
);
const editor = new Editor(document.getElementById("editor"));
const given = editor.text;
const place = `draft:${window.location.pathname}${window.location.search}`;
const maySubmit = !parts.send.disabled;
let timer = 0;
let asked = 0; // which check the newest one is
let attempt = { body: "", key: "" };

function options() {
  const measuring = form.elements.measuring.value;
  return { force: measuring === "force", measure: measuring !== "none" };
}

function shown(problems, html) {
  editor.mark(problems);
  if (problems.length) parts.problems.innerHTML = html;
  else {
    parts.problems.replaceChildren();
    parts.summary.innerHTML = html;
  }
  parts.summary.classList.toggle("stale", problems.length > 0 && parts.summary.querySelector("dl") !== null);
  parts.send.disabled = problems.length > 0 || !maySubmit;
  parts["send-why"].textContent = problems.length ? "once the spec is right" : "";
}

async function check(settled) {
  const number = ++asked;
  parts.checking.textContent = "checking…";
  try {
    const body = JSON.stringify({ text: editor.text, settled, ...options() });
    const found = await ask("/submit/check", { method: "POST", body });
    if (number !== asked) return;
    shown(found.problems, found.html);
    parts.checking.textContent = found.problems.length ? "" : settled ? "the spec is right" : "looking up the target…";
    if (!settled && !found.problems.length) timer = setTimeout(() => check(true), SETTLED_MS);
  } catch (error) {
    if (number === asked) parts.checking.textContent = `not checked: ${error.message}`;
  }
}

function later() {
  clearTimeout(timer);
  asked += 1; // what is still on its way is about another text
  parts.checking.textContent = "";
  timer = setTimeout(() => check(false), TYPING_MS);
}

function keep() {
  try {
    if (editor.text === given) sessionStorage.removeItem(place);
    else sessionStorage.setItem(place, editor.text);
  } catch {
    // a private window, or a text that is too long to be kept
  }
}

function restore() {
  const kept = sessionStorage.getItem(place);
  if (kept === null || kept === given) return;
  editor.text = kept;
  parts.restored.hidden = false;
}

// The same key for the same body, so that a second click makes no second job.
function keyOf(body) {
  if (attempt.body !== body) {
    const random = crypto.getRandomValues(new Uint8Array(16));
    attempt = { body, key: `page-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}` };
  }
  return attempt.key;
}

async function send() {
  if (parts.send.disabled || !form.reportValidity()) return;
  const hours = parts.deadline.value;
  const body = JSON.stringify({
    text: editor.text,
    ...options(),
    priority: Number(parts.priority.value),
    deadline: hours === "" ? null : Number(hours) * Number(parts["deadline-unit"].value),
  });
  parts.send.disabled = true;
  parts.refused.textContent = "";
  parts["send-why"].textContent = "sending…";
  try {
    const job = await ask("/submit", { method: "POST", body, headers: { "Idempotency-Key": keyOf(body) } });
    sessionStorage.removeItem(place);
    window.location.assign(`/jobs/${job.id}`);
  } catch (error) {
    parts.send.disabled = !maySubmit;
    parts["send-why"].textContent = "";
    const field = error.problem?.field;
    parts.refused.textContent = field ? `${field}: ${error.message}` : error.message;
    if (field !== undefined) check(true); // says where
  }
}

editor.onInput(() => {
  keep();
  later();
});
form.addEventListener("change", (event) => {
  if (event.target.name === "measuring") later();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    send();
  }
});
parts.problems.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-line]");
  if (link === null) return;
  event.preventDefault();
  const { line, column, endColumn } = link.dataset;
  editor.select({ line: Number(line), column: Number(column), end_column: Number(endColumn) });
});
parts.discard.addEventListener("click", () => {
  editor.text = given;
  keep();
  parts.restored.hidden = true;
  check(true);
  document.getElementById("spec").focus();
});

restore();
if (editor.text.trim()) check(false);
