// Two results on one axis: the ratio of their throughputs above, the categories of A and of B below.

import { ask, onTheme, say, token } from "./app.js";
import { Chart, axis, el, echarts, figure, fill, legend, paintSwatches, percent, redrawAll, text, tooltip } from "./charts.js";
import { kernelOf, measuredAt, runs, shapeOf, strip } from "./charts_instances.js";

const WIDE = 10; // ratios that lie further apart have a logarithmic axis
const RATIO = ["--bad", "--map-0", "--good"];

// Positions in both of the instances that both have, as [in a, in b].
function common(a, b) {
  const columns = a.variables.map((name) => b.variables.indexOf(name));
  const place = new Map(b.category.map((_, at) => [columns.map((axis) => b.shapes[axis][at]).join(), at]));
  return a.category.flatMap((_, at) => {
    const other = place.get(a.shapes.map((column) => column[at]).join());
    return other === undefined ? [] : [[at, other]];
  });
}

function describe(a, b, [one, two], measured) {
  const rows = [
    ["predicted", [a.predicted[one], b.predicted[two]]],
    ["measured", measured],
  ];
  const list = el("dl", "tip-rows");
  for (const [name, values] of rows) {
    if (values === undefined) continue;
    const [mine, theirs] = values;
    const said = `A ${figure(mine)}, B ${figure(theirs)} GFLOP/s: ${percent(mine / theirs - 1)}`;
    list.append(el("div", "", el("dt", "", name), el("dd", "", said)));
  }
  list.append(el("div", "", el("dt", "", "A"), el("dd", "", `${a.category[one]} · ${kernelOf(a, one)}`)));
  list.append(el("div", "", el("dt", "", "B"), el("dd", "", `${b.category[two]} · ${kernelOf(b, two)}`)));
  return el("div", "tip", el("div", "tip-head", el("strong", "", shapeOf(a, one))), list);
}

class Comparison {
  constructor(a, b) {
    this.a = a;
    this.b = b;
    this.both = common(a, b).sort(([one], [two]) => a.shapes[0][one] - a.shapes[0][two]);
    // One colour for one micro-kernel in both: those of A first.
    const names = [...new Set([a, b].flatMap((data) => data.serves.map((kernel) => data.kernels[kernel])))];
    const colours = (data) => data.serves.map((kernel) => names.indexOf(data.kernels[kernel]));
    this.colours = [colours(a), colours(b)];
    const [of_a, of_b] = [measuredAt(a), measuredAt(b)];
    this.measured = new Map(
      this.both
        .filter(([one, two]) => of_a.has(one) && of_b.has(two))
        .map(([one, two]) => [one, [a.compared.measured[of_a.get(one)], b.compared.measured[of_b.get(two)]]]),
    );
  }

  describe(both) {
    return describe(this.a, this.b, both, this.measured.get(both[0]));
  }

  ratio([one, two]) {
    return this.a.predicted[one] / this.b.predicted[two];
  }

  overOne(view) {
    const { a, both } = this;
    const at = ([one]) => a.shapes[0][one];
    const strips = [this.a, this.b].map((data, which) => runs(data.shapes[0], data.category.map((category) => this.colours[which][category])));
    const min = Math.min(...strips.map((found) => found[0][0]));
    const max = Math.max(...strips.map((found) => found[found.length - 1][1]));
    const along = { type: "value", min, max, splitLine: { show: false } };
    const points = [...this.measured].map(([one, [mine, theirs]]) => [a.shapes[0][one], mine / theirs]);
    const ratios = both.map((pair) => this.ratio(pair));
    const isWide = Math.max(...ratios) > WIDE * Math.min(...ratios);
    const hidden = { axisLabel: { show: false }, axisTick: { show: false } };
    const band = (index, name) => axis({ gridIndex: index, type: "value", min: 0, max: 1, name, nameLocation: "middle", nameRotate: 0, nameGap: 14, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false }, nameTextStyle: { color: token("--text"), fontWeight: 600 } });
    const left = 48;
    return {
      legend: legend(["predicted", ...(points.length ? ["measured"] : [])]),
      axisPointer: { link: [{ xAxisIndex: "all" }], label: { show: false } },
      tooltip: tooltip((found) => this.describe(this.nearest(view.under(3) ?? found[0].axisValue)), { trigger: "axis", axisPointer: { type: "line", snap: false } }),
      grid: [
        { left, right: 16, top: 46, bottom: 136 },
        { left, right: 16, height: 34, bottom: 88 },
        { left, right: 16, height: 34, bottom: 44 },
      ],
      xAxis: [
        axis({ ...along, ...hidden, gridIndex: 0 }),
        axis({ ...along, ...hidden, gridIndex: 1 }),
        axis({ ...along, gridIndex: 2, name: a.variables[0], nameLocation: "middle", nameGap: 26, axisLabel: { formatter: (value) => (Number.isInteger(value) ? String(value) : "") } }),
      ],
      yAxis: [
        axis({ gridIndex: 0, type: isWide ? "log" : "value", scale: true, name: "A over B", nameTextStyle: { align: "left", padding: [0, 0, 0, -left + 8] }, splitNumber: 4, axisLabel: { formatter: (value) => figure(value, 4) } }),
        band(1, "A"),
        band(2, "B"),
      ],
      series: [
        { name: "predicted", type: "line", data: both.map((pair) => [at(pair), this.ratio(pair)]), showSymbol: false, sampling: "lttb", lineStyle: { color: token("--accent"), width: 1.75 }, itemStyle: { color: token("--accent") }, markLine: { silent: true, symbol: "none", animation: false, label: { show: false }, lineStyle: { color: token("--control"), type: "dashed" }, data: [{ yAxis: 1 }] } },
        { name: "measured", type: "scatter", data: points, symbolSize: 9, itemStyle: { color: token("--good"), borderColor: token("--surface"), borderWidth: 1 } },
        strip("A", strips[0], { xAxisIndex: 1, yAxisIndex: 1 }, () => false),
        strip("B", strips[1], { xAxisIndex: 2, yAxisIndex: 2 }, () => false),
      ],
    };
  }

  nearest(value) {
    const { a, both } = this;
    let low = 0;
    let high = both.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (a.shapes[0][both[middle][0]] < value) low = middle;
      else high = middle;
    }
    const off = (index) => Math.abs(a.shapes[0][both[index][0]] - value);
    return both[off(low) <= off(high) ? low : high];
  }

  // Over two variables: the ratio, the map of A, the map of B, one below the other.
  overTwo() {
    const { a, b } = this;
    const worst = new Map();
    for (const pair of this.both) {
      const key = `${a.shapes[0][pair[0]]} ${a.shapes[1][pair[0]]}`;
      if (!worst.has(key) || this.ratio(pair) < this.ratio(worst.get(key))) worst.set(key, pair);
    }
    const both = [...worst.values()];
    const sorted = (column) => [...new Set(column)].sort((one, two) => one - two);
    const [across, up] = [sorted(a.shapes[0]), sorted(a.shapes[1])];
    const column = new Map(across.map((value, index) => [value, index]));
    const row = new Map(up.map((value, index) => [value, index]));
    const place = (one) => [column.get(a.shapes[0][one]), row.get(a.shapes[1][one])];
    const width = Math.max(0.01, ...both.map((pair) => Math.abs(Math.log(this.ratio(pair)))));
    const cells = (color) => both.map((pair) => ({ value: [...place(pair[0]), this.ratio(pair)], both: pair, itemStyle: color && { color: fill(color(pair)) } }));
    const tops = ["4%", "36%", "66%"];
    const grid = tops.map((top) => ({ left: 64, right: 16, top, height: "24%" }));
    const named = ["A over B", "A", "B"];
    const series = (index, data) => ({ name: named[index], type: "heatmap", xAxisIndex: index, yAxisIndex: index, data, progressive: 4000 });
    return {
      title: named.map((name, index) => ({ text: name, left: 64, top: `${[0, 32, 62][index]}%`, textStyle: { ...text(), fontWeight: 600, color: token("--text") } })),
      tooltip: tooltip(({ data }) => this.describe(data.both)),
      grid,
      xAxis: named.map((_, index) => axis({ gridIndex: index, type: "category", data: across, name: index === 2 ? a.variables[0] : "", nameLocation: "middle", nameGap: 26 })),
      yAxis: named.map((_, index) => axis({ gridIndex: index, type: "category", data: up, name: a.variables[1], nameLocation: "middle", nameGap: 44 })),
      visualMap: { type: "continuous", seriesIndex: 0, min: Math.exp(-width), max: Math.exp(width), dimension: 2, orient: "horizontal", right: 16, top: 0, itemHeight: 100, itemWidth: 10, padding: 5, calculable: false, formatter: (value) => figure(value, 3), text: [`${figure(Math.exp(width))} ×`, figure(Math.exp(-width))], textStyle: text(), inRange: { color: RATIO.map(token) } },
      series: [series(0, cells()), series(1, cells(([one]) => this.colours[0][a.category[one]])), series(2, cells(([, two]) => this.colours[1][b.category[two]]))],
    };
  }
}

async function show(box) {
  const [library, a, b] = await Promise.all([echarts(box.dataset.echarts), ask(box.dataset.a), ask(box.dataset.b)]);
  const found = new Comparison(a, b);
  new Chart(library, box, (view) => (a.variables.length === 1 ? found.overOne(view) : found.overTwo()));
  onTheme(() => {
    redrawAll();
    paintSwatches(document);
  });
}

const box = document.querySelector('[data-chart="compare"]');
paintSwatches(document);
if (box !== null) show(box).catch((error) => say(error.message, true));
