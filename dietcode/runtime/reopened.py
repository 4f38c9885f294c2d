"""Pickling of what was loaded from a folder: its path and digest travel, and it is loaded again there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from dietcode.errors import LibraryError
from dietcode.runtime.manifest import REPORT, read_json


class Reopened:
    """What `dietcode.load` returns: copied as itself, since nothing in it changes; pickled as its folder.

    Attributes
    ----------
    folder : Path
    loaded_by : tuple or None
        The function and the arguments that load it again, as pickles have them.
    """

    folder: Path
    loaded_by: tuple[Callable[..., Any], tuple[Any, ...]] | None = None

    @property
    def report(self) -> dict[str, Any]:
        """Everything ``dietcode inspect`` shows."""
        return read_json(self.folder / REPORT)

    def __copy__(self) -> Self:
        """Return itself, as `__deepcopy__` does."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself, so that modules that hold it can be copied."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return what `pickle` keeps.

        Raises
        ------
        LibraryError
            It was not loaded by `dietcode.load`.
        """
        if self.loaded_by is None:
            raise LibraryError(
                f"{self!r}: pickled by its folder, and it was not loaded from one; use dietcode.load"
            )
        return self.loaded_by
