// The live part of a job's page. Server-sent events say that there is news; what it is the server renders.
// Where they do not get through, or a proxy keeps them back, the page asks every two seconds instead.

import { ask, localise, onTheme, say, tell, token } from "./app.js";

const NEWS_MS = 1000; // events may come much faster than anybody reads
const IDLE_MS = 10000; // durations grow without events
const FINAL = new Set(["succeeded", "failed", "cancelled"]);
const SPOKEN = {
  queued: "is in the queue",
  waiting_for_runner: "waits for a runner",
  running: "is running",
  interrupted: "was interrupted",
  succeeded: "has succeeded",
  failed: "has failed",
  cancelled: "was cancelled",
};

const live = document.getElementById("live");
const stateNow = () => document.getElementById("state").dataset.state;
let last = Number(live.dataset.events); // number of the newest event that was seen
let state = stateNow();
let source = null;
let polls = false;
let asked = 0; // when there was news last
let pending = 0;

function news() {
  const wait = asked + NEWS_MS - Date.now();
  if (pending) return;
  pending = window.setTimeout(() => {
    pending = 0;
    asked = Date.now();
    tell("news");
    readLog();
    readSeries();
  }, Math.max(0, wait));
}

function open() {
  if (source !== null || document.hidden || FINAL.has(state)) return;
  source = new EventSource(`/api/v1/jobs/${live.dataset.job}/events?after=${last}`);
  const heard = (event) => {
    last = Math.max(last, Number(event.lastEventId));
    polls = false;
    news();
  };
  source.addEventListener("progress", heard);
  source.addEventListener("state", heard);
  source.addEventListener("error", () => {
    // The browser comes back by itself after a broken line, but not after an answer that is no stream.
    if (source.readyState === EventSource.CLOSED) {
      close();
      polls = !FINAL.has(state);
    }
  });
}

function close() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    close();
  } else {
    open();
    news(); // what was missed
  }
});
document.body.addEventListener("tick", () => {
  if (state === "running" || polls) {
    if (polls || Date.now() - asked > IDLE_MS) news();
  }
});
document.body.addEventListener("changed", news);
window.addEventListener("pagehide", close);

// A change of state is read out; the result comes as soon as there is one.
document.addEventListener("htmx:afterSwap", () => {
  const now = stateNow();
  if (now === state) return;
  state = now;
  say(`The job ${SPOKEN[state]}.`);
  document.title = document.title.replace(/ · .* · /, ` · ${state.replaceAll("_", " ")} · `);
  if (state === "succeeded") tell("succeeded");
  if (FINAL.has(state)) close();
  else open();
});

// The log: only what is new is asked for and put on top, so that what somebody reads stays where it is.
const rows = document.getElementById("log-rows");
const isFirstPage = !new URLSearchParams(window.location.search).has("before");
let reading = false;

async function readLog() {
  if (!isFirstPage || reading) return;
  reading = true;
  const newest = rows.querySelector("[data-seq]")?.dataset.seq ?? 0;
  try {
    const response = await fetch(`${rows.dataset.src}&after=${newest}`, { headers: { "HX-Request": "true" } });
    if (!response.ok) return;
    const part = document.createElement("template");
    part.innerHTML = await response.text();
    const found = [...part.content.querySelectorAll("li[data-seq]")];
    if (found.length === 0) return;
    for (const row of rows.querySelectorAll("li:not([data-seq]):not(.older)")) row.remove();
    for (const row of found) row.classList.add("fresh");
    rows.prepend(...found);
    localise();
    window.setTimeout(() => found.forEach((row) => row.classList.remove("fresh")), 1500);
  } catch {
    // htmx has said that the server does not answer
  } finally {
    reading = false;
  }
}

// The chart: best GFLOP/s over the time that workers spent. A model's page has none: its parts differ.
const box = document.getElementById("best-chart");
let chart = null;
let series = { points: [], trials: [], until: 0 };

async function readSeries() {
  if (box === null) return;
  try {
    series = await ask(box.dataset.src);
    draw();
  } catch {
    // what is there stays
  }
}

function clock(secs) {
  const whole = Math.round(secs);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (parts[0] === 0) parts.shift();
  return parts.map((part, at) => (at ? String(part).padStart(2, "0") : part)).join(":");
}

// What is under the mouse: the best so far, and a trial where one is near.
function tip(all) {
  const shown = document.createElement("div");
  const lines = all.flatMap(({ data: { point, trial } }) =>
    trial ? [`${trial[2]} after ${clock(trial[0])}`] : [`best ${point[1].toFixed(1)} GFLOP/s after ${clock(point[0])}`, `${point[2]}: ${point[3]}`],
  );
  for (const text of lines) {
    shown.append(Object.assign(document.createElement("div"), { textContent: text }));
  }
  return shown;
}

function draw() {
  const { points, trials, until } = series;
  if (box === null) return;
  box.hidden = points.length === 0;
  if (box.hidden) return;
  chart ??= window.echarts.init(box, null, { renderer: "canvas" });
  const line = points.map((point) => ({ value: point.slice(0, 2), point }));
  const [newest] = points.slice(-1);
  line.push({ value: [Math.max(until, newest[0]), newest[1]], point: newest, symbolSize: 0 });
  const text = { color: token("--muted"), fontFamily: token("--font"), fontSize: 12 };
  const rule = { lineStyle: { color: token("--grid-line") } };
  chart.setOption({
    animation: false,
    aria: { enabled: false },
    legend: { show: trials.length > 0, top: 0, right: 8, data: ["best so far", "trials"], selectedMode: false, textStyle: text },
    grid: { left: 8, right: 16, top: 28, bottom: 4, containLabel: true },
    tooltip: {
      trigger: "axis",
      axisPointer: { type: "line", lineStyle: { color: token("--control") } },
      className: "chart-tip",
      confine: true,
      formatter: tip,
      backgroundColor: token("--surface"),
      borderColor: token("--line"),
      textStyle: { color: token("--text"), fontSize: 13 },
    },
    xAxis: {
      type: "value",
      min: 0,
      max: Math.max(until, 1),
      minInterval: 1,
      axisLabel: { ...text, formatter: clock, hideOverlap: true, showMaxLabel: false },
      axisLine: rule,
      splitLine: { show: false },
    },
    yAxis: {
      type: "value",
      name: "GFLOP/s",
      nameTextStyle: { ...text, align: "left" },
      axisLabel: text,
      splitLine: rule,
      splitNumber: 4,
    },
    series: [
      {
        name: "best so far",
        type: "line",
        step: "end",
        data: line,
        symbol: "circle",
        symbolSize: 7,
        lineStyle: { width: 2, color: token("--accent") },
        itemStyle: { color: token("--accent") },
        areaStyle: { color: token("--accent"), opacity: 0.08 },
      },
      {
        name: "trials",
        type: "scatter",
        data: trials.map((trial) => ({ value: trial.slice(0, 2), trial })),
        symbolSize: 5,
        z: 3,
        itemStyle: { color: token("--muted"), opacity: 0.7 },
      },
    ],
  });
}

if (box !== null) new ResizeObserver(() => chart?.resize()).observe(box);
onTheme(draw);
readSeries();
open();
