// Performance against binary size (Figure 12), and f_spatial fitted and measured (Figure 13).

import { Chart, axis, bytes, el, figure, legend, percent, tooltip } from "./charts.js";
import { token } from "./app.js";

function rows(head, pairs, note = "") {
  const list = el("dl", "tip-rows");
  for (const [name, value] of pairs) list.append(el("div", "", el("dt", "", name), el("dd", "", value)));
  return el("div", "tip", el("div", "tip-head", el("strong", "", head)), list, note ? el("p", "tip-why", note) : null);
}

// The least of 1, 2, 2.5, 5 and their tenfolds that reaches a number.
function niceStep(least) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(least, 0.1))); // labels have four digits
  return [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= least * (1 - 1e-9)) * unit;
}

// `choose(index)` is called with a point that was clicked.
export function drawTradeOff(library, box, data, choose) {
  const points = data.tradeOff.map((point, index) => ({ ...point, index, value: [point.bytes / 1024, 100 * (1 - point.mean)] }));
  const step = niceStep(Math.max(...points.map((point) => 100 * point.mean)) / 4);
  const best = points.filter((point) => point.best);
  const chosen = points.filter((point) => point.chosen);
  const note = (point) => (point.chosen ? "This is the library." : point.best ? "Click to select it." : "Another set is no larger and loses no more.");
  const view = new Chart(library, box, (chart) => ({
    legend: legend(["best of its size", "others", "chosen"]),
    tooltip: tooltip(({ data: point }) =>
      rows(`${point.kernels} micro-kernel${point.kernels === 1 ? "" : "s"}`, [["size", bytes(point.bytes)], ["mean loss", percent(point.mean, 2)], ["worst loss", percent(point.worst, 2)]], note(point)),
    ),
    grid: { left: 52, right: 20, top: chart.isNarrow ? 56 : 46, bottom: 44 },
    xAxis: axis({ type: "value", scale: true, name: "size of the library, KiB", nameLocation: "middle", nameGap: 26, splitNumber: 5 }),
    yAxis: axis({ type: "value", name: "mean throughput, % of the best", nameTextStyle: { align: "left", padding: [0, 0, 0, -44] }, min: 100 - 4 * step, max: 100, interval: step, axisLabel: { formatter: (value) => figure(value, 4) } }),
    series: [
      { name: "best of its size", type: "line", step: "end", data: best, symbol: "circle", symbolSize: 9, cursor: "pointer", lineStyle: { color: token("--accent"), width: 1.5 }, itemStyle: { color: token("--accent") } },
      { name: "others", type: "scatter", data: points.filter((point) => !point.best && !point.chosen), symbolSize: 7, cursor: "default", itemStyle: { color: token("--surface"), borderColor: token("--muted"), borderWidth: 1.25 } },
      { name: "chosen", type: "scatter", data: chosen, symbol: "diamond", symbolSize: 18, z: 5, cursor: "default", itemStyle: { color: token("--good"), borderColor: token("--surface"), borderWidth: 2 } },
    ],
  }));
  view.chart.on("click", ({ data: point }) => {
    if (point?.best && !point.chosen) choose(point.index);
  });
  return view;
}

export function drawFit(library, box, { fit }) {
  const at = (values) => fit.tiles.map((n, index) => [n, values[index]]);
  const rate = (value) => (fit.full === null ? "" : `, ${figure(value * fit.full)} GFLOP/s`);
  const names = ["measured", "f_spatial", "with launch time"];
  return new Chart(library, box, (chart) => ({
    legend: legend(names),
    tooltip: tooltip((found) => {
      const index = found[0].dataIndex;
      const n = fit.tiles[index];
      const x = (Math.ceil(n / fit.slots) * fit.slots) / n;
      return rows(`${n} tiles, ${figure(n / fit.slots)} waves`, [
        ["measured", `${figure(fit.measured[index])}${rate(fit.measured[index])}`],
        ["f_spatial", `${figure(fit.spatial[index])}, x = ${figure(x)}`],
        ["with launch", figure(fit.withLaunch[index])],
      ]);
    }, { trigger: "axis", axisPointer: { lineStyle: { color: token("--control") } } }),
    grid: { left: 52, right: 20, top: chart.isNarrow ? 56 : 46, bottom: 44 },
    xAxis: axis({ type: "value", min: 0, max: fit.tiles[fit.tiles.length - 1], name: "tiles", nameLocation: "middle", nameGap: 26, minInterval: 1, splitLine: { show: false } }),
    yAxis: axis({ type: "value", min: 0, name: "fraction of full waves", nameTextStyle: { align: "left", padding: [0, 0, 0, -44] }, splitNumber: 4 }),
    series: [
      { name: names[0], type: "scatter", data: at(fit.measured), symbolSize: 10, z: 4, itemStyle: { color: token("--good"), borderColor: token("--surface"), borderWidth: 1 } },
      { name: names[1], type: "line", data: at(fit.spatial), symbolSize: 5, lineStyle: { color: token("--accent"), width: 2 }, itemStyle: { color: token("--accent") } },
      { name: names[2], type: "line", data: at(fit.withLaunch), symbolSize: 4, lineStyle: { color: token("--muted"), width: 1.5, type: "dashed" }, itemStyle: { color: token("--muted") } },
    ],
  }));
}
