"""Tensors of a library that the runtime does not know."""

from __future__ import annotations

from typing import Any


class DlpackOnly:
    """An array that has DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        """Return the array's capsule."""
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        """Return the array's device."""
        return self.array.__dlpack_device__()
