// Results on one axis: the throughput of the first over the others' above, the categories of each below.

import { ask, onTheme, say, token } from "./app.js";
import { Chart, axis, el, echarts, figure, fill, legend, paintSwatches, percent, redrawAll, text, tooltip } from "./charts.js";
import { kernelOf, measuredAt, runs, shapeOf, strip } from "./charts_instances.js";

const WIDE = 10; // ratios that lie further apart have a logarithmic axis
const RATIO = ["--bad", "--map-0", "--good"];

const LINES = ["--accent", "--good", "--cat-1", "--cat-4", "--cat-7", "--cat-9", "--bad"]; // of A over the others
const SHAPES = ["circle", "diamond", "triangle", "rect", "pin", "arrow", "roundRect"];
const STRIP = 44; // pixels of a strip of categories, with what is below it
const letter = (index) => String.fromCharCode(65 + index);

// Positions in each result of the instances that all have, as [in the first, in the second, …].
function common(all) {
  const [first] = all;
  const places = all.map((data) => {
    const columns = first.variables.map((name) => data.variables.indexOf(name));
    return new Map(data.category.map((_, at) => [columns.map((axis) => data.shapes[axis][at]).join(), at]));
  });
  const found = first.category.map((_, at) => places.map((place) => place.get(first.shapes.map((column) => column[at]).join())));
  return found.filter((place) => !place.includes(undefined));
}

// What was measured of a result at an instance and nothing disturbed; undefined elsewhere.
function calmRates(data) {
  const { measured, disturbed } = data.compared;
  return new Map([...measuredAt(data)].filter(([, index]) => disturbed[index] === null).map(([at, index]) => [at, measured[index]]));
}

class Comparison {
  constructor(all) {
    this.all = all;
    this.others = all.slice(1).map((_, index) => index + 1);
    const [first] = all;
    this.places = common(all).sort(([one], [two]) => first.shapes[0][one] - first.shapes[0][two]);
    // One colour for one micro-kernel in all: those of A first.
    const names = [...new Set(all.flatMap((data) => data.serves.map((kernel) => data.kernels[kernel])))];
    this.colours = all.map((data) => data.serves.map((kernel) => names.indexOf(data.kernels[kernel])));
    const rates = all.map(calmRates);
    this.measured = new Map(this.places.map((place) => [place[0], place.map((at, index) => rates[index].get(at))]));
  }

  describe(place) {
    const { all } = this;
    const rows = [
      ["predicted", place.map((at, index) => all[index].predicted[at])],
      ["measured", this.measured.get(place[0])],
    ];
    const list = el("dl", "tip-rows");
    for (const [name, values] of rows) {
      if (values.filter((value) => value !== undefined).length < 2) continue;
      const said = values.flatMap((value, index) => (value === undefined ? [] : [`${letter(index)} ${figure(value)}`]));
      const more = this.others.flatMap((other) =>
        values[0] === undefined || values[other] === undefined ? [] : [`A ${percent(values[0] / values[other] - 1)} over ${letter(other)}`],
      );
      list.append(el("div", "", el("dt", "", name), el("dd", "", `${said.join(", ")} GFLOP/s${more.length ? `: ${more.join(", ")}` : ""}`)));
    }
    place.forEach((at, index) => list.append(el("div", "", el("dt", "", letter(index)), el("dd", "", `${all[index].category[at]} · ${kernelOf(all[index], at)}`))));
    return el("div", "tip", el("div", "tip-head", el("strong", "", shapeOf(all[0], place[0]))), list);
  }

  ratio(place, other) {
    return this.all[0].predicted[place[0]] / this.all[other].predicted[place[other]];
  }

  overOne(view) {
    const { all, others, places } = this;
    const [first] = all;
    const at = ([one]) => first.shapes[0][one];
    const strips = all.map((data, index) => runs(data.shapes[0], data.category.map((category) => this.colours[index][category])));
    const min = Math.min(...strips.map((found) => found[0][0]));
    const max = Math.max(...strips.map((found) => found[found.length - 1][1]));
    const along = { type: "value", min, max, splitLine: { show: false } };
    const hidden = { axisLabel: { show: false }, axisTick: { show: false } };
    const isPair = others.length === 1;
    const named = (kind, other) => (isPair ? kind : `${kind} A / ${letter(other)}`);
    const lines = others.map((other) => ({ name: named("predicted", other), data: places.map((place) => [at(place), this.ratio(place, other)]) }));
    const dots = others.map((other) => ({
      name: named("measured", other),
      data: places.flatMap((place) => {
        const rates = this.measured.get(place[0]);
        return rates[0] === undefined || rates[other] === undefined ? [] : [[at(place), rates[0] / rates[other]]];
      }),
    }));
    const ratios = [...lines, ...dots].flatMap(({ data }) => data.map(([, value]) => value));
    const isWide = Math.max(...ratios) > WIDE * Math.min(...ratios);
    const colour = (index) => token(isPair && index === 0 ? "--accent" : LINES[index]);
    const band = (index) => axis({ gridIndex: index + 1, type: "value", min: 0, max: 1, name: letter(index), nameLocation: "middle", nameRotate: 0, nameGap: 14, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false }, nameTextStyle: { color: token("--text"), fontWeight: 600 } });
    const left = 48;
    const top = isPair ? 46 : 46 + 22 * Math.ceil(others.length / 2);
    const one = { silent: true, symbol: "none", animation: false, label: { show: false }, lineStyle: { color: token("--control"), type: "dashed" }, data: [{ yAxis: 1 }] };
    return {
      legend: legend([...lines, ...dots.filter(({ data }) => data.length)].map(({ name }) => name)),
      axisPointer: { link: [{ xAxisIndex: "all" }], label: { show: false } },
      tooltip: tooltip((found) => this.describe(this.nearest(view.under(all.length + 1) ?? found[0].axisValue)), { trigger: "axis", axisPointer: { type: "line", snap: false } }),
      grid: [
        { left, right: 16, top, bottom: STRIP * (all.length + 1) + 4 },
        ...all.map((_, index) => ({ left, right: 16, height: STRIP - 10, bottom: STRIP * (all.length - index) })),
      ],
      xAxis: [
        axis({ ...along, ...hidden, gridIndex: 0 }),
        ...all.slice(1).map((_, index) => axis({ ...along, ...hidden, gridIndex: index + 1 })),
        axis({ ...along, gridIndex: all.length, name: first.variables[0], nameLocation: "middle", nameGap: 26, axisLabel: { formatter: (value) => (Number.isInteger(value) ? String(value) : "") } }),
      ],
      yAxis: [
        axis({ gridIndex: 0, type: isWide ? "log" : "value", scale: true, name: isPair ? "A over B" : "A over the others", nameTextStyle: { align: "left", padding: [0, 0, 0, -left + 8] }, splitNumber: 4, axisLabel: { formatter: (value) => figure(value, 4) } }),
        ...all.map((_, index) => band(index)),
      ],
      series: [
        ...lines.map(({ name, data }, index) => ({ name, type: "line", data, showSymbol: false, sampling: "lttb", lineStyle: { color: colour(index), width: 1.75 }, itemStyle: { color: colour(index) }, markLine: index === 0 ? one : undefined })),
        ...dots.map(({ name, data }, index) => ({ name, type: "scatter", data, symbol: SHAPES[index], symbolSize: 9, itemStyle: { color: isPair ? token("--good") : colour(index), borderColor: token("--surface"), borderWidth: 1 } })),
        ...strips.map((found, index) => strip(letter(index), found, { xAxisIndex: index + 1, yAxisIndex: index + 1 }, () => false)),
      ],
    };
  }

  nearest(value) {
    const { places } = this;
    const [first] = this.all;
    let low = 0;
    let high = places.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (first.shapes[0][places[middle][0]] < value) low = middle;
      else high = middle;
    }
    const off = (index) => Math.abs(first.shapes[0][places[index][0]] - value);
    return places[off(low) <= off(high) ? low : high];
  }

  // Over two variables: A over each other, then the maps of all, one below the other.
  overTwo(box) {
    const { all, others } = this;
    const [first] = all;
    const worst = new Map();
    const least = (place) => Math.min(...others.map((other) => this.ratio(place, other)));
    for (const place of this.places) {
      const key = `${first.shapes[0][place[0]]} ${first.shapes[1][place[0]]}`;
      if (!worst.has(key) || least(place) < least(worst.get(key))) worst.set(key, place);
    }
    const places = [...worst.values()];
    const sorted = (column) => [...new Set(column)].sort((one, two) => one - two);
    const [across, up] = [sorted(first.shapes[0]), sorted(first.shapes[1])];
    const column = new Map(across.map((value, index) => [value, index]));
    const row = new Map(up.map((value, index) => [value, index]));
    const place = (one) => [column.get(first.shapes[0][one]), row.get(first.shapes[1][one])];
    const width = Math.max(0.01, ...places.flatMap((found) => others.map((other) => Math.abs(Math.log(this.ratio(found, other))))));
    const panels = [
      ...others.map((other) => ({ name: `A over ${letter(other)}`, of: (found) => ({ value: [...place(found[0]), this.ratio(found, other)] }) })),
      ...all.map((data, index) => ({ name: letter(index), of: (found) => ({ value: [...place(found[0]), 0], itemStyle: { color: fill(this.colours[index][data.category[found[index]]]) } }) })),
    ];
    box.style.height = `${15 * panels.length}rem`;
    const each = 100 / panels.length;
    const isLast = (index) => index === panels.length - 1;
    const kinds = panels.map((_, index) => index);
    return {
      title: panels.map(({ name }, index) => ({ text: name, left: 64, top: `${index * each}%`, textStyle: { ...text(), fontWeight: 600, color: token("--text") } })),
      tooltip: tooltip(({ data }) => this.describe(data.places)),
      grid: kinds.map((index) => ({ left: 64, right: 16, top: `${index * each + 0.12 * each}%`, height: `${0.66 * each}%` })),
      xAxis: kinds.map((index) => axis({ gridIndex: index, type: "category", data: across, name: isLast(index) ? first.variables[0] : "", nameLocation: "middle", nameGap: 26 })),
      yAxis: kinds.map((index) => axis({ gridIndex: index, type: "category", data: up, name: first.variables[1], nameLocation: "middle", nameGap: 44 })),
      visualMap: { type: "continuous", seriesIndex: others.map((_, index) => index), min: Math.exp(-width), max: Math.exp(width), dimension: 2, orient: "horizontal", right: 16, top: 0, itemHeight: 100, itemWidth: 10, padding: 5, calculable: false, formatter: (value) => figure(value, 3), text: [`${figure(Math.exp(width))} ×`, figure(Math.exp(-width))], textStyle: text(), inRange: { color: RATIO.map(token) } },
      series: panels.map(({ name, of }, index) => ({ name, type: "heatmap", xAxisIndex: index, yAxisIndex: index, data: places.map((found) => ({ ...of(found), places: found })), progressive: 4000 })),
    };
  }
}

async function show(box) {
  const [library, ...all] = await Promise.all([echarts(box.dataset.echarts), ...box.dataset.sources.split(" ").map((source) => ask(source))]);
  const found = new Comparison(all);
  const isOne = all[0].variables.length === 1;
  if (isOne && all.length > 2) box.style.height = `${22 + 3 * all.length}rem`;
  new Chart(library, box, (view) => (isOne ? found.overOne(view) : found.overTwo(box)));
  onTheme(() => {
    redrawAll();
    paintSwatches(document);
  });
}

const box = document.querySelector('[data-chart="compare"]');
paintSwatches(document);
if (box !== null) show(box).catch((error) => say(error.message, true));
