// What all charts of results share: colours of categories, the frame around ECharts, and small pieces of markup.
// Text reaches the page as text nodes only: names in reports are other people's words.

import { token } from "./app.js";

const NUM_COLOURS = 12; // --cat-0 … of style.css
const HATCHES = 5;
const STILL = window.matchMedia("(prefers-reduced-motion: reduce)");
const charts = new Set();

export function el(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function figure(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value !== 0 && Math.abs(value) >= 100) return value.toFixed(0);
  return Number(value.toPrecision(digits)).toString();
}

export const percent = (fraction, digits = 1) => `${(100 * fraction).toFixed(digits)} %`;

export function bytes(number) {
  return number < 1 << 20 ? `${(number / 1024).toFixed(1)} KiB` : `${(number / (1 << 20)).toFixed(2)} MiB`;
}

// ECharts is large: it comes when there is something to draw, once.
let loading = null;
export function echarts(source) {
  if (window.echarts) return Promise.resolve(window.echarts);
  loading ??= new Promise((resolve, reject) => {
    const waiting = document.querySelector("script[src*='echarts']");
    const script = waiting ?? Object.assign(document.createElement("script"), { src: source });
    script.addEventListener("load", () => resolve(window.echarts));
    script.addEventListener("error", () => reject(new Error("the charts could not be loaded")));
    if (waiting === null) document.head.append(script);
    else if (window.echarts) resolve(window.echarts);
  });
  return loading;
}

// A category is told by colour, and from the thirteenth on by hatching too; its number stands beside it.
const patterns = new Map();
export function fill(category) {
  const colour = token(`--cat-${category % NUM_COLOURS}`);
  const hatch = Math.floor(category / NUM_COLOURS) % HATCHES;
  if (hatch === 0) return colour;
  const key = `${colour} ${hatch} ${token("--surface")}`;
  if (!patterns.has(key)) patterns.set(key, { image: hatched(colour, hatch), repeat: "repeat" });
  return patterns.get(key);
}

function hatched(colour, hatch) {
  const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  const context = canvas.getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 8, 8);
  context.strokeStyle = token("--surface");
  context.lineWidth = 1.5;
  const lines = [
    [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]],
    [[0, 0, 8, 8], [-2, 6, 2, 10], [6, -2, 10, 2]],
    [[0, 4, 8, 4]],
    [[4, 0, 4, 8]],
  ][hatch - 1];
  for (const [x0, y0, x1, y1] of lines) {
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  }
  return canvas;
}

export function paintSwatches(root) {
  for (const canvas of root.querySelectorAll("canvas.swatch")) {
    const category = canvas.dataset.category ?? canvas.closest("[data-category]")?.dataset.category;
    const context = canvas.getContext("2d");
    const found = fill(Number(category));
    context.fillStyle = typeof found === "string" ? found : context.createPattern(found.image, "repeat");
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
}

// What reads on a colour: black or white, whichever has more contrast.
export function inkOn(category) {
  const colour = token(`--cat-${category % NUM_COLOURS}`);
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

// A chart in an element: `option()` is asked for again when colours or the width change. The element says by
// data-drawn that there is something to see, and its `chart` is what drew it.
export class Chart {
  constructor(library, box, option) {
    this.library = library;
    this.box = box;
    this.option = option;
    this.marked = null;
    this.place = null;
    this.chart = library.init(box, null, { renderer: "canvas" });
    box.chart = this.chart;
    this.chart.on("finished", () => (box.dataset.drawn = ""));
    // Heard before ECharts hears it: what it calls the value of an axis may be the edge of a neighbouring strip.
    this.mouse = null;
    this.chart.getZr().on("mousemove", (event) => (this.mouse = [event.offsetX, event.offsetY]));
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(box);
    charts.add(this);
    this.draw();
  }

  get isNarrow() {
    return this.box.clientWidth < 520;
  }

  resize() {
    if (this.chart.getWidth() === this.box.clientWidth && this.chart.getHeight() === this.box.clientHeight) return;
    this.chart.resize();
    this.draw();
  }

  draw() {
    if (this.box.clientWidth === 0) return;
    this.chart.setOption({ ...frame(), ...this.option(this) }, { notMerge: true, lazyUpdate: false });
    this.mark(this.place);
  }

  // Puts a line or a circle where `place(chart)` says, null for nowhere. It has a layer of its own: what is below,
  // maybe of ten thousand instances, is not drawn again.
  mark(place) {
    this.place = place;
    const shape = place?.(this.chart) ?? null;
    const kind = shape !== null && "r" in shape ? "Circle" : "Line";
    if (this.marked === null) {
      if (shape === null) return;
      this.marked = [1, 2].map((zlevel) => new this.library.graphic[kind]({ silent: true, zlevel }));
      for (const drawn of this.marked) this.chart.getZr().add(drawn);
    }
    // A ring shows on every colour of a map, in both themes: a dark and a light one, one around the other.
    const style = { fill: "transparent", lineDash: kind === "Line" ? [4, 3] : null };
    const [below, above] = this.marked;
    below.attr(shape === null || kind === "Line" ? { ignore: true } : { ignore: false, shape, style: { ...style, stroke: token("--surface"), lineWidth: 6 } });
    above.attr(shape === null ? { ignore: true } : { ignore: false, shape, style: { ...style, stroke: token("--text"), lineWidth: kind === "Line" ? 1 : 2.5 } });
  }

  // The value below the mouse on the first axis, in whichever of the grids it is; null outside of them.
  under(numGrids, place = this.mouse) {
    for (let gridIndex = 0; place !== null && gridIndex < numGrids; gridIndex += 1)
      if (this.chart.containPixel({ gridIndex }, place)) return this.chart.convertFromPixel({ gridIndex }, place)[0];
    return null;
  }

  dispose() {
    this.resized.disconnect();
    charts.delete(this);
    this.chart.dispose();
  }
}

export function redrawAll() {
  patterns.clear();
  for (const chart of charts) chart.draw();
}

export function disposeWithin(root) {
  for (const chart of [...charts]) if (root.contains(chart.box)) chart.dispose();
}

export const text = () => ({ color: token("--muted"), fontFamily: token("--font"), fontSize: 12 });

export function axis(options = {}) {
  const { nameTextStyle, axisLabel, splitLine, ...rest } = options;
  return {
    nameTextStyle: { ...text(), ...nameTextStyle },
    axisLabel: { ...text(), hideOverlap: true, ...axisLabel },
    axisLine: { lineStyle: { color: token("--line") } },
    axisTick: { lineStyle: { color: token("--line") } },
    splitLine: { lineStyle: { color: token("--grid-line") }, ...splitLine },
    minorTick: { show: false },
    ...rest,
  };
}

export function tooltip(formatter, options = {}) {
  return {
    trigger: "item",
    className: "chart-tip",
    confine: true,
    enterable: false,
    transitionDuration: STILL.matches ? 0 : 0.15,
    backgroundColor: token("--surface"),
    borderColor: token("--line"),
    padding: [8, 12],
    textStyle: { color: token("--text"), fontFamily: token("--font"), fontSize: 13 },
    formatter,
    ...options,
  };
}

function frame() {
  return { animation: !STILL.matches, animationDuration: 250, aria: { enabled: false }, textStyle: text() };
}

export function legend(names) {
  return {
    show: true,
    top: 0,
    left: 0,
    data: names,
    textStyle: { ...text(), color: token("--text") },
    itemWidth: 18,
    itemHeight: 10,
    itemGap: 14,
  };
}
