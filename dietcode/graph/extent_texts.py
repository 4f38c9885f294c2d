"""Texts of extents in one graph that anybody may have written: each is read once, and not too many are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dietcode.graph.extent import Extent, parse_extent

MAX_TEXTS = 1 << 14  # characters of different texts; examples of models have up to 47


class _Texts:
    """Those that were read, and how many characters they have."""

    def __init__(self) -> None:
        self.known: dict[str, Extent] = {}
        self.num_chars = 0


_READ: ContextVar[_Texts | None] = ContextVar("texts of extents", default=None)


@contextmanager
def texts_of_one_graph() -> Iterator[None]:
    """Bound what `extent_of_text` reads, for as long as this lasts."""
    token = _READ.set(_Texts())
    try:
        yield
    finally:
        _READ.reset(token)


def extent_of_text(value: object) -> Extent:
    """Return what `parse_extent` does.

    Raises
    ------
    ValueError
        As there; and within `texts_of_one_graph`, there are more than `MAX_TEXTS` characters of different
        texts.
    """
    read = _READ.get()
    if read is None or not isinstance(value, str):
        return parse_extent(value)
    if value not in read.known:
        read.num_chars += len(value)
        if read.num_chars > MAX_TEXTS:
            raise ValueError(f"different extents of over {MAX_TEXTS} characters; allowed: as many in a graph")
        read.known[value] = parse_extent(value)
    return read.known[value]
