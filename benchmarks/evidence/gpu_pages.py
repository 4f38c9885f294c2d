"""The page of a GPU, from its records; measures nothing, so that any machine renders it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.evidence import choice, gpu_series, gpu_tiles
from benchmarks.evidence import series as cpu_series
from benchmarks.evidence import tiles as cpu_tiles
from benchmarks.evidence.figure import Figure
from benchmarks.evidence.gpu import Device, read_device
from benchmarks.evidence.pages import write_pages
from benchmarks.facts import slug
from dietcode.errors import RecordsError

_FIRST = "bert-dense"  # the paper's own workload
_SERIES = {
    "bert-dense": cpu_series.DENSE,
    "bert-dense-hidden": cpu_series.HIDDEN,
    "resnet50-conv3x3": cpu_series.CONV,
}
Data = Callable[[Device, list[str]], dict[str, Any] | None]


def gpu_figures(device: Device) -> list[Figure]:
    """Every figure of the paper for a device, and a further one for each other workload that was compared."""
    names = sorted(device.workloads, key=lambda name: (name != _FIRST, name))

    def figure(like: Figure, data: Data, of: Any, which: list[str] = names, **more: str) -> Figure:
        kind = data.__name__
        name = more.get("name", like.name)
        return Figure(
            name=name,
            title=more.get("title", like.title),
            paper=more.get("paper", like.paper),
            uses=lambda _: which,
            measure=lambda given: data(given, which),
            draw=getattr(of, f"draw_{kind}"),
            table=getattr(of, f"table_{kind}"),
            ours=getattr(of, f"ours_{kind}"),
            why=why(device, name),
        )

    others = [name for name in device.compared if name not in _SERIES]
    of_calls = figure(
        cpu_series.COMPLEXITY,
        gpu_series.calls,
        gpu_series,
        [one["library"] for one in device.calls],
        name="calls",
        title="More: what a call costs the host",
        paper="Not among its figures.",
    )
    return [
        figure(cpu_series.COMPLEXITY, gpu_series.complexity, gpu_series),
        figure(cpu_tiles.GRIDS, gpu_tiles.waves, gpu_tiles, title="Figure 9: grids that leave SMs idle"),
        figure(cpu_tiles.EDGES, gpu_tiles.paddings, gpu_tiles),
        figure(choice.VOTES, gpu_series.votes, gpu_series),
        figure(cpu_tiles.SWEEP, gpu_tiles.sweep, gpu_tiles),
        replace(choice.PRUNING, measure=lambda _: None),  # the benchmark measures every micro-kernel in full
        *(figure(like, gpu_series.series, gpu_series, [name]) for name, like in _SERIES.items()),
        *(
            figure(
                cpu_series.DENSE,
                gpu_series.series,
                gpu_series,
                [name],
                name=f"series-{name}",
                title=f"More: {name}",
                paper="Not among its figures.",
            )
            for name in sorted(others)
        ),
        *([of_calls] if device.calls else []),
    ]


def why(device: Device, name: str) -> str:
    """What is known to differ, and the sentence of whoever looked at the figures, where there is one."""
    known = f"The paper's GPU is a Tesla T4 with 40 SMs; this one is {device.name} with {device.num_sms}. "
    told = device.why.get(name)
    return known + (told or "Nobody has examined yet what else makes the difference (`why.yaml`).")


def render(folder: Path, output: Path, allow_synthetic: bool = False) -> Path:
    """Write the data, plots and page of a device.

    Parameters
    ----------
    folder : Path
        Its records and comparisons.
    output : Path
        Where devices have their folders.
    allow_synthetic : bool
        For tests: whether records that no device measured will do. The page says so then.

    Returns
    -------
    Path
        The device's folder.

    Raises
    ------
    RecordsError
        The records cannot be used; see `read_device`.
    """
    device = read_device(folder)
    if device.synthetic and not allow_synthetic:
        raise RecordsError(f"{folder}: synthetic: no device measured them; no figure is drawn from them")
    place = output / slug(device.name)
    place.mkdir(parents=True, exist_ok=True)
    for old in [*place.glob("*.json"), *place.glob("*.svg")]:
        old.unlink()
    figures = gpu_figures(device)
    for figure in figures:
        data = figure.measure(device)
        if data is not None:
            used = list(figure.uses(device))
            made = data.pop("made", {})  # of what is neither records nor a comparison
            text = json.dumps(device.facts(used) | made | {"data": data}, indent=1)
            (place / f"{figure.name}.json").write_text(text + "\n")
    write_pages(place, figures)
    return place
