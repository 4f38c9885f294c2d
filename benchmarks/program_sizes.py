"""Examples of programs in other sizes than theirs, to compile for `benchmarks.programs`.

    dietcode compile benchmarks/program_sizes.py:birnn_512 --samples birnn_512_samples -o DIR/birnn_512

An example's name and a size is the program, with ``_samples`` behind it its samples.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "programs"
SAMPLES = "_samples"


def example_of(name: str) -> Any:
    """Return the module of an example."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def sized(name: str) -> tuple[str, int]:
    """Return the example and the size of ``tree_lstm_512``, or of ``tree_lstm`` and its own size.

    Raises
    ------
    ValueError
        There is no such example.
    """
    example, _, size = name.rpartition("_")
    if not size.isdigit():
        example, size = name, ""
    if not (EXAMPLES / f"{example}.py").is_file():
        raise ValueError(f"{name}: allowed: an example of {EXAMPLES}, with _ and a size or without")
    first = next(iter(inspect.signature(example_of(example).build).parameters.values()))
    return example, int(size or first.default)


def program_of(name: str) -> Any:
    """Return an example's program in a size."""
    example, size = sized(name)
    return example_of(example).build(size)


def samples_of(name: str, count: int = 64) -> list[Any]:
    """Return an example's samples, whose vectors have this size where they have any."""
    example, size = sized(name)
    samples = example_of(example).samples
    words = {"hidden", "width"} & set(inspect.signature(samples).parameters)
    found: list[Any] = samples(count, **dict.fromkeys(words, size))
    return found


def __getattr__(name: str) -> Any:
    """Return what `dietcode compile` asks for."""
    try:
        return samples_of(name.removesuffix(SAMPLES)) if name.endswith(SAMPLES) else program_of(name)
    except ValueError as error:
        raise AttributeError(str(error)) from None
