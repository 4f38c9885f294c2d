"""What a figure is: how it is measured, drawn and told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.evidence.shop import Row
from dietcode.cost_model.model import FloatArray


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


def whiskers(rates: Sequence[float], between: Sequence[Sequence[float]] | None) -> FloatArray | None:
    """Return how far below and above some rates the middle half of their readings goes, [2, num_rates].

    None where the record does not have it, as those of before 2026-11-27.
    """
    if between is None:
        return None
    low, high = np.asarray(between, dtype=np.float64).T
    middle = np.asarray(rates, dtype=np.float64)
    return np.maximum(np.stack([middle - low, high - middle]), 0.0)
