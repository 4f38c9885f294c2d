"""What a figure is: how it is measured, drawn and told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evidence.shop import Row


@dataclass(frozen=True)
class Figure:
    """A figure or table of the paper.

    Attributes
    ----------
    name : str
        Of its files.
    title : str
    paper : str
        What the paper found, with its device.
    uses : callable
        Workloads that it depends on: of a `Scale`, as paths below the checkout, or of a GPU's `Device`.
    measure : callable
        Raw data, JSON, from a `Shop`; or from a `Device`, None where its records hold nothing of it.
    draw : callable
        Onto Matplotlib axes; `num_axes` of them.
    table : callable
        Rows of text, the heads first.
    ours : callable
        One sentence with our values.
    why : str
        One sentence on why they differ from the paper's.
    """

    name: str
    title: str
    paper: str
    uses: Callable[[Any], Sequence[str]]
    measure: Callable[[Any], Row | None]
    draw: Callable[[Any, Row], None]
    table: Callable[[Row], list[list[str]]]
    ours: Callable[[Row], str]
    why: str
    num_axes: int = 1
