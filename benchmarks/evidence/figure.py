"""What a figure is: how it is measured, drawn and told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evidence.shop import Row, Scale, Shop


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
        Workloads of a scale that it depends on, below the checkout.
    measure : callable
        Raw data, JSON.
    draw : callable
        Onto Matplotlib axes; `num_axes` of them.
    table : callable
        Rows of text, the heads first.
    ours : callable
        One sentence with our values.
    why : str
        One sentence on why they differ from the paper's, for CPUs.
    """

    name: str
    title: str
    paper: str
    uses: Callable[[Scale], Sequence[str]]
    measure: Callable[[Shop], Row]
    draw: Callable[[Any, Row], None]
    table: Callable[[Row], list[list[str]]]
    ours: Callable[[Row], str]
    why: str
    num_axes: int = 1
