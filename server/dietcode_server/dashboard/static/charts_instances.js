// One instance in words, and the charts of all of them: over one shape variable, and as a map over two.

import { Chart, axis, el, figure, fill, inkOn, legend, percent, text, tooltip } from "./charts.js";
import { token } from "./app.js";

const SAMPLED = 1500; // lines of more points are thinned to what a screen can show
const RAMP = ["--map-0", "--map-1", "--map-2", "--map-3", "--map-4"];
const MAX_CELLS = 40000;
const [TOP, BOTTOM] = [46, 44]; // pixels around throughput and strip

export const loss = (data, at) => Math.max(0, 1 - data.predicted[at] / data.best[at]);
export const kernelOf = (data, at) => data.kernels[data.serves[data.category[at]]];
export const shapeOf = (data, at) =>
  data.variables.map((name, axis) => `${name} = ${data.shapes[axis][at]}`).join(", ");

// Position in `compared` of each instance that was measured.
export function measuredAt(data) {
  return new Map(data.compared.position.map((position, index) => [position, index]));
}

// Measured over the vendor's; null where there is none, or where something disturbed it.
function ratioAt(data, at) {
  const index = measuredAt(data).get(at);
  if (index === undefined || data.compared.disturbed[index] || data.compared.vendor[index] === null) return null;
  return data.compared.measured[index] / data.compared.vendor[index];
}

// What a tooltip and the panel below a chart say of one instance.
export function describe(data, at, note = "") {
  const index = measuredAt(data).get(at);
  const rows = [["predicted", `${figure(data.predicted[at])} GFLOP/s`]];
  if (index !== undefined) {
    rows.push(["measured", `${figure(data.compared.measured[index])} GFLOP/s`]);
    const vendor = data.compared.vendor[index];
    if (vendor !== null) rows.push([data.compared.vendorName[index], `${figure(vendor)} GFLOP/s`]);
    if (ratioAt(data, at) !== null) rows.push(["of vendor", `${figure(ratioAt(data, at))} ×`]);
    const roof = data.compared.roof[index];
    if (roof !== null) rows.push(["roofline", `${figure(roof)} GFLOP/s${data.compared.disturbed[index] ? "" : `, ${percent(data.compared.measured[index] / roof)} reached`}`]);
    if (data.compared.disturbed[index]) rows.push(["disturbed", data.compared.disturbed[index]]);
  }
  rows.push(["f_local", `${figure(data.f_local[at])} GFLOP/s`]);
  rows.push(["f_spatial", `${figure(data.f_spatial[at])}${idle(data, at)}`]);
  rows.push(["f_pad", `${figure(data.f_pad[at])}, padding ratio ${figure(1 / data.f_pad[at], 4)}`]);
  if (data.waves[at] !== null) rows.push(["waves", waves(data, at)]);
  const list = el("dl", "tip-rows");
  for (const [name, value] of rows) list.append(el("div", "", el("dt", "", name), el("dd", "", value)));
  const head = el("div", "tip-head", el("strong", "", shapeOf(data, at)));
  head.append(` · category ${data.category[at]} · `, el("code", "", kernelOf(data, at)));
  return el("div", "tip", head, list, el("p", "tip-why", why(data, at)), note ? el("p", "tip-why", note) : null);
}

const idle = (data, at) => (data.f_spatial[at] < 0.9995 ? `, ${percent(1 - data.f_spatial[at])} to idle slots` : "");

function waves(data, at) {
  const number = data.waves[at];
  const tiles = data.slots === null ? "" : `: ${figure(number * data.slots, 4)} tiles on P = ${data.slots} cores`;
  return `${figure(number)}${tiles}`;
}

// Why this micro-kernel: what else there was, and what it is predicted.
function why(data, at) {
  const mine = data.predicted[at];
  const other = data.runnerUp[at];
  const less = loss(data, at);
  if (less > 1e-6) {
    const best = data.prefers[at] < 0 ? "the best" : data.kernels[data.prefers[at]];
    const isChosen = data.serves.includes(data.prefers[at]);
    const reason = isChosen ? "the dispatch rule gives that up to stay small" : "it is not in the library, to keep it small";
    return `Why: ${best} is predicted ${figure(data.best[at])} GFLOP/s, ${percent(data.best[at] / mine - 1)} more; ${reason}.`;
  }
  if (other < 0) return `Why: the best of ${data.kernels.length} measured micro-kernels here.`;
  const behind = percent(1 - data.other[at] / mine);
  return `Why: the best of ${data.kernels.length} measured; next is ${data.kernels[other]}, ${figure(data.other[at])} GFLOP/s, ${behind} less.`;
}

// Neighbouring instances of one category, as [first value, end value, category], along a sorted axis.
export function runs(values, categories) {
  const order = values.map((_, at) => at).sort((a, b) => values[a] - values[b]);
  const found = [];
  for (const at of order) {
    const last = found[found.length - 1];
    if (last && last[2] === categories[at]) last[1] = values[at];
    else found.push([values[at], values[at], categories[at]]);
  }
  for (let at = 0; at + 1 < found.length; at += 1) {
    const middle = (found[at][1] + found[at + 1][0]) / 2;
    found[at].end = middle;
    found[at + 1].begin = middle;
  }
  return found.map((run) => [run.begin ?? run[0] - 0.5, run.end ?? run[1] + 0.5, run[2], run[0], run[1]]);
}

// A series of ECharts that draws runs as a strip; `faded(category)` says which are not meant now.
export function strip(name, found, axes, faded) {
  return {
    name,
    type: "custom",
    ...axes,
    clip: true,
    emphasis: { disabled: true },
    progressive: 0, // all at once: pieces of a strip look like gaps
    encode: { x: [0, 1] },
    data: found.map((run) => ({ value: run.slice(0, 3) })),
    renderItem(params, api) {
      const category = api.value(2);
      const [left] = api.coord([api.value(0), 0]);
      const [right] = api.coord([api.value(1), 0]);
      const { x, y, width: full, height } = params.coordSys;
      const from = Math.max(left, x);
      const width = Math.min(right, x + full) - from;
      if (width <= 0) return null;
      const label = String(category);
      const fits = width > 8 * label.length + 4;
      const paint = fill(category);
      const ground = typeof paint === "string" ? null : { fill: token(`--cat-${category % 12}`) };
      const opacity = faded(category) ? 0.15 : 1;
      return {
        type: "group",
        children: [
          { type: "rect", emphasisDisabled: true, shape: { x: from, y, width, height }, style: { fill: paint, opacity, stroke: token("--surface"), lineWidth: width > 3 ? 0.5 : 0 } },
          fits && {
            type: "text",
            silent: true,
            emphasisDisabled: true,
            style: { text: label, x: from + width / 2, y: y + height / 2, align: "center", verticalAlign: "middle", fill: inkOn(category), font: `600 11px ${token("--font")}`, backgroundColor: ground?.fill, padding: ground ? 2 : 0, opacity },
          },
        ].filter(Boolean),
      };
    },
  };
}

// Over one variable: throughput above, the strip below, on one axis.
export class Assignment {
  constructor(library, box, data, state) {
    this.data = data;
    this.state = state;
    this.order = data.shapes[0].map((_, at) => at).sort((a, b) => data.shapes[0][a] - data.shapes[0][b]);
    this.values = this.order.map((at) => data.shapes[0][at]);
    this.runs = runs(data.shapes[0], data.category);
    this.view = new Chart(library, box, () => this.option());
    this.view.chart.on("datazoom", () => this.mark());
    this.view.chart.getZr().on("click", (event) => {
      const value = this.view.under(2, [event.offsetX, event.offsetY]);
      if (value !== null) state.pin(this.at(value));
    });
  }

  draw() {
    this.view.draw();
  }

  // A line through throughput and strip at the pinned instance.
  mark() {
    this.view.mark((chart) => {
      const [x] = chart.convertToPixel({ gridIndex: 0 }, [this.data.shapes[0][this.state.pinned], 0]);
      const inside = chart.containPixel({ gridIndex: 0 }, [x, TOP + 1]);
      return inside ? { x1: x, x2: x, y1: TOP, y2: chart.getHeight() - BOTTOM } : null;
    });
  }

  // The instance whose value is closest.
  at(value) {
    let low = 0;
    let high = this.values.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.values[middle] < value) low = middle;
      else high = middle;
    }
    return this.order[Math.abs(this.values[low] - value) <= Math.abs(this.values[high] - value) ? low : high];
  }

  option() {
    const { data, state } = this;
    const faded = (category) => state.category !== null && state.category !== category;
    const [name] = data.variables;
    const logarithmic = state.log && this.values[0] > 0;
    const first = this.runs[0][0];
    const end = this.runs[this.runs.length - 1][1];
    const along = { type: logarithmic ? "log" : "value", min: logarithmic ? Math.max(first, this.values[0] * 0.9) : first, max: end };
    const line = this.order.map((at) => [data.shapes[0][at], data.predicted[at]]);
    const { position, measured, vendor, roof, disturbed } = data.compared;
    const pointsOf = (rates, isDisturbed) =>
      position.flatMap((at, index) => (rates[index] === null || (disturbed[index] !== null) !== isDisturbed ? [] : [[data.shapes[0][at], rates[index]]]));
    const [points, vendors, roofs] = [measured, vendor, roof].map((rates) => pointsOf(rates, false));
    const untrusted = [measured, vendor].flatMap((rates) => pointsOf(rates, true));
    const many = line.length > SAMPLED;
    const names = ["predicted", ...(points.length ? ["measured"] : []), ...(vendors.length ? ["vendor"] : []), ...(roofs.length ? ["roofline"] : []), ...(untrusted.length ? ["disturbed"] : [])];
    const left = 48;
    return {
      legend: legend(names),
      axisPointer: { link: [{ xAxisIndex: "all" }], lineStyle: { color: token("--control") }, label: { show: false } },
      tooltip: tooltip((found) => describe(data, this.at(this.view.under(2) ?? found[0].axisValue)), {
        trigger: "axis",
        axisPointer: { type: "line", snap: false },
      }),
      grid: [
        { left, right: 16, top: TOP, bottom: BOTTOM + 48 },
        { left, right: 16, height: 36, bottom: BOTTOM },
      ],
      xAxis: [
        axis({ ...along, gridIndex: 0, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false } }),
        axis({ ...along, gridIndex: 1, name, nameLocation: "middle", nameGap: 26, splitLine: { show: false }, axisLabel: { formatter: (value) => (Number.isInteger(value) ? String(value) : "") } }),
      ],
      yAxis: [
        axis({ gridIndex: 0, type: "value", name: "GFLOP/s", nameTextStyle: { align: "left", padding: [0, 0, 0, -left + 8] }, splitNumber: 4, min: 0 }),
        axis({ gridIndex: 1, type: "value", show: false, min: 0, max: 1 }),
      ],
      dataZoom: [{ type: "inside", xAxisIndex: [0, 1], filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, moveOnMouseMove: true }],
      series: [
        {
          name: "predicted",
          type: "line",
          xAxisIndex: 0,
          yAxisIndex: 0,
          data: line,
          showSymbol: line.length < 60,
          symbolSize: 4,
          sampling: many ? "lttb" : undefined,
          lineStyle: { width: many ? 1 : 1.75, color: token("--accent") },
          itemStyle: { color: token("--accent") },
        },
        { name: "measured", type: "scatter", xAxisIndex: 0, yAxisIndex: 0, data: points, symbol: "circle", symbolSize: 9, z: 4, itemStyle: { color: token("--good"), borderColor: token("--surface"), borderWidth: 1 } },
        { name: "vendor", type: "scatter", xAxisIndex: 0, yAxisIndex: 0, data: vendors, symbol: "diamond", symbolSize: 10, z: 3, itemStyle: { color: token("--surface"), borderColor: token("--text"), borderWidth: 1.5 } },
        { name: "roofline", type: "scatter", xAxisIndex: 0, yAxisIndex: 0, data: roofs, symbol: "rect", symbolSize: [14, 2], z: 2, itemStyle: { color: token("--muted") } },
        { name: "disturbed", type: "scatter", xAxisIndex: 0, yAxisIndex: 0, data: untrusted, symbol: "triangle", symbolSize: 9, z: 3, itemStyle: { color: "transparent", borderColor: token("--bad"), borderWidth: 1.5 } },
        strip("category", this.runs, { xAxisIndex: 1, yAxisIndex: 1 }, faded),
      ],
    };
  }
}

const FIGURES = {
  predicted: { name: "predicted GFLOP/s", of: (data, at) => data.predicted[at], write: (value) => figure(value) },
  loss: { name: "loss against the best", of: loss, write: (value) => percent(value) },
  ratio: { name: "measured ÷ vendor", of: ratioAt, write: (value) => `${figure(value)} ×` },
  f_pad: { name: "f_pad", of: (data, at) => data.f_pad[at], write: (value) => figure(value) },
  f_spatial: { name: "f_spatial", of: (data, at) => data.f_spatial[at], write: (value) => figure(value) },
};

// Cells over two variables; where others vary too, a cell shows the instance that loses most.
export function cellsOf(data, xAxis, yAxis) {
  const found = new Map();
  for (let at = 0; at < data.category.length; at += 1) {
    const key = `${data.shapes[xAxis][at]} ${data.shapes[yAxis][at]}`;
    const cell = found.get(key);
    if (cell === undefined) found.set(key, { at, count: 1 });
    else {
      cell.count += 1;
      if (loss(data, at) > loss(data, cell.at)) cell.at = at;
    }
  }
  return [...found.values()];
}

const sorted = (values) => [...new Set(values)].sort((a, b) => a - b);

// Over two variables: a map. Where most cells of the rectangle are there they are cells, else points.
export class ShapeMap {
  constructor(library, box, data, state) {
    this.data = data;
    this.state = state;
    this.view = new Chart(library, box, () => this.option());
    this.view.chart.on("click", (event) => {
      if (event.data?.at !== undefined) state.pin(event.data.at);
    });
  }

  draw() {
    this.view.draw();
  }

  mark() {
    this.view.mark((chart) => {
      const [cx, cy] = chart.convertToPixel({ seriesIndex: 0 }, this.place(this.state.pinned));
      return { cx, cy, r: 8 };
    });
  }

  option() {
    const { data, state } = this;
    const { x, y, colour } = state;
    const cells = cellsOf(data, x, y);
    const across = sorted(data.shapes[x]);
    const up = sorted(data.shapes[y]);
    const isGrid = cells.length * 2 >= across.length * up.length && across.length * up.length <= MAX_CELLS && !state.log;
    const place = isGrid ? this.grid(across, up) : (at) => [data.shapes[x][at], data.shapes[y][at]];
    this.place = place;
    const shown = FIGURES[colour];
    const items = cells.map(({ at, count }) => {
      const value = [...place(at), shown ? shown.of(data, at) : data.category[at]];
      const faded = state.category !== null && state.category !== data.category[at];
      const itemStyle = shown ? {} : { color: fill(data.category[at]) };
      const edge = colour === "ratio" ? { borderColor: token("--control"), borderWidth: 1 } : {}; // dark ones beside unknown ones
      return { value, at, count, itemStyle: { ...itemStyle, ...edge, opacity: faded ? 0.12 : 1 } };
    });
    const kind = isGrid ? "category" : state.log ? "log" : "value";
    const unknown = shown ? items.filter((item) => item.value[2] === null) : [];
    const known = shown ? items.filter((item) => item.value[2] !== null) : items;
    const values = items.map((item) => item.value[2]).filter((value) => value !== null);
    const name = (variable, gap) => ({ name: data.variables[variable], nameLocation: "middle", nameGap: gap });
    const size = (count) => (count > 2000 ? 4 : count > 300 ? 7 : 12); // few that are known among many stand out
    const drawn = { type: isGrid ? "heatmap" : "scatter", symbol: "rect" };
    const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
    return {
      title: shown && { text: shown.name, left: "center", bottom: 26, textStyle: { ...text(), fontWeight: 400 } },
      tooltip: tooltip(({ data: item }) => describe(data, item.at, item.count > 1 ? `${item.count} instances are here; this one loses most.` : "")),
      grid: { left: 64, right: 16, top: 12, bottom: shown ? 100 : 48 },
      xAxis: axis({ type: kind, data: isGrid ? across : undefined, scale: true, ...name(x, 26), splitArea: { show: false }, splitLine: { show: !isGrid } }),
      yAxis: axis({ type: kind, data: isGrid ? up : undefined, scale: true, ...name(y, 44), splitLine: { show: !isGrid } }),
      visualMap: shown && {
        type: "continuous",
        seriesIndex: 0,
        min: least,
        max: Math.max(most, least * 1.01, least + 1e-9),
        dimension: 2,
        orient: "horizontal",
        left: "center",
        bottom: 0,
        itemHeight: 160,
        itemWidth: 12,
        calculable: false,
        text: [shown.write(most), shown.write(least)],
        textGap: 8,
        formatter: shown.write,
        textStyle: text(),
        inRange: { color: RAMP.map(token) },
      },
      series: [
        {
          name: "instances",
          ...drawn,
          symbolSize: size(known.length),
          z: 3,
          data: known,
          progressive: 4000,
          label: { show: isGrid && !shown && cells.length <= 400, fontSize: 10, formatter: ({ value }) => String(value[2]) },
          emphasis: { itemStyle: { borderColor: token("--text"), borderWidth: 1.5 } },
        },
        // Of these the figure is not known: they are there, without a colour of the scale.
        { name: "unknown", ...drawn, symbolSize: size(cells.length), data: unknown.map((item) => ({ ...item, value: [...item.value.slice(0, 2), 0], itemStyle: { color: token("--line"), opacity: 0.4 } })) },
      ],
    };
  }

  grid(across, up) {
    const column = new Map(across.map((value, index) => [value, index]));
    const row = new Map(up.map((value, index) => [value, index]));
    const { x, y } = this.state;
    return (at) => [column.get(this.data.shapes[x][at]), row.get(this.data.shapes[y][at])];
  }
}
