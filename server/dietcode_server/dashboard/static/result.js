// The result of a job or of a library: draws its charts once its data is there, and sends what was chosen.

import { ask, onTheme, say } from "./app.js";
import { disposeWithin, echarts, paintSwatches, percent, redrawAll } from "./charts.js";
import { Assignment, ShapeMap, describe } from "./charts_instances.js";
import { drawFit, drawTradeOff } from "./charts_curves.js";

const begun = new WeakSet();

function begin() {
  for (const root of document.querySelectorAll("[data-result]")) {
    if (begun.has(root)) continue;
    begun.add(root);
    paintSwatches(root);
    root.ready = show(root).catch((error) => say(error.message, true));
  }
}

async function show(root) {
  const [library, data] = await Promise.all([echarts(root.dataset.echarts), ask(root.dataset.src)]);
  if (!root.isConnected) return;
  const controls = root.querySelector("[data-controls]");
  const chosen = (name, usual) => controls.querySelector(`[data-${name}]`)?.value ?? usual; // maybe before the data came
  const state = {
    category: null,
    pinned: null,
    log: controls.querySelector("[data-log]").checked,
    colour: chosen("colour", "category"),
    x: Number(chosen("axis=x", 0)),
    y: Number(chosen("axis=y", 1)),
    pin,
  };
  const box = (name) => root.querySelector(`[data-chart="${name}"]`);
  const main = box("map") ? new ShapeMap(library, box("map"), data, state) : new Assignment(library, box("assignment"), data, state);
  if (box("trade-off")) drawTradeOff(library, box("trade-off"), data, (index) => choose(root, index, data));
  if (box("fit")) drawFit(library, box("fit"), data);

  const slider = root.querySelector("[data-pin]");
  function pin(at) {
    state.pinned = at;
    slider.value = String(at);
    slider.setAttribute("aria-valuetext", data.variables.map((name, axis) => `${name} ${data.shapes[axis][at]}`).join(", "));
    root.querySelector("[data-pinned]").replaceChildren(describe(data, at));
    main.mark();
  }
  slider.addEventListener("input", () => pin(Number(slider.value)));
  pin(Math.floor(data.category.length / 2));

  root.querySelector("[data-legend]").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button === null) return;
    const category = Number(button.dataset.category);
    state.category = state.category === category ? null : category;
    for (const other of root.querySelectorAll("[data-legend] button"))
      other.setAttribute("aria-pressed", String(Number(other.dataset.category) === state.category));
    main.draw();
    const only = state.category === null ? "" : `?category=${state.category}`;
    const table = root.querySelector("#instances");
    window.htmx.ajax("GET", `${table.dataset.path}${only}`, { target: table, swap: "outerHTML" });
  });

  controls.addEventListener("change", ({ target }) => {
    if (target.matches("[data-log]")) state.log = target.checked;
    if (target.matches("[data-colour]")) state.colour = target.value;
    if (target.matches("[data-axis]")) {
      const before = state[target.dataset.axis];
      const other = target.dataset.axis === "x" ? "y" : "x";
      state[target.dataset.axis] = Number(target.value);
      if (state[other] === state[target.dataset.axis]) {
        state[other] = before;
        root.querySelector(`[data-axis="${other}"]`).value = String(before);
      }
    }
    main.draw();
  });

  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-point]");
    if (button !== null) choose(root, Number(button.dataset.point), data);
    const code = event.target.closest("button.code-of");
    if (code !== null) {
      const row = document.getElementById(code.getAttribute("aria-controls"));
      row.hidden = !row.hidden;
      code.setAttribute("aria-expanded", String(!row.hidden));
    }
  });
}

// Asks, then submits the job's spec with the objective of that point: selects and builds, measures nothing.
function choose(root, index, data) {
  const button = root.querySelector(`button[data-point="${index}"]`);
  if (button === null) {
    say("you may not publish here: a token with submit and publish is needed", true);
    return;
  }
  const point = data.tradeOff[index];
  const dialog = root.querySelector("[data-ask]");
  dialog.querySelector("[data-ask-text]").textContent =
    `A new job selects the smallest library that loses at most ${percent(point.mean, 2)} on average, from the ` +
    `measurements there are, and publishes it as the next version. Expected: ${point.kernels} micro-kernels, ` +
    `${point.bytes} bytes. Nothing is measured.`;
  dialog.returnValue = "no";
  dialog.onclose = () => {
    if (dialog.returnValue === "yes") reselect(root, JSON.parse(button.dataset.objective));
  };
  dialog.showModal();
}

async function reselect(root, objective) {
  try {
    const manifest = await ask(`/api/v1${root.dataset.result}`);
    const spec = manifest.workload;
    // Keys of a manifest are sorted; the order of operands and variables is not.
    const inOrder = (names, values) => Object.fromEntries(names.map((name) => [name, values[name]]));
    spec.tensors = inOrder(manifest.tensor_order, spec.tensors);
    spec.shape_vars = inOrder(manifest.variable_order, spec.shape_vars);
    spec.objective = { ...spec.objective, ...objective };
    const job = await ask("/api/v1/jobs", { method: "POST", body: JSON.stringify({ spec, measure: false }) });
    window.location.assign(`/jobs/${job.id}`);
  } catch (error) {
    say(error.message, true);
  }
}

document.addEventListener("htmx:load", (event) => {
  begin();
  paintSwatches(event.detail.elt);
});
document.addEventListener("htmx:beforeCleanupElement", (event) => disposeWithin(event.detail.elt));
onTheme(() => {
  redrawAll();
  paintSwatches(document);
});
begin();
