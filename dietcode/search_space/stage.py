"""One stage of an epilogue, in the form that code generation takes. Imports no compiler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.workload.epilogue import EpilogueStep
from dietcode.workload.text import clip

# Whether each reads a tensor.
_STAGES = {
    "bias": True,
    "relu": False,
    "silu": False,
    "gelu-erf": False,
    "gelu-tanh": False,
    "tanh": False,
    "sigmoid": False,
    "hardswish": False,
    "hardsigmoid": False,
    "clip": False,
    "residual": True,
    "scale": False,
}
_NUMBERS = {"scale": 1, "clip": 2}  # that a stage takes; the others take none
_BOUNDED = frozenset({"tanh", "sigmoid", "clip", "hardsigmoid"})  # whose results do not grow with the sums


@dataclass(frozen=True)
class Stage:
    """One epilogue stage.

    Attributes
    ----------
    kind : str
        As an epilogue of a spec has it; ``gelu-erf`` and ``gelu-tanh`` for gelu.
    value : float, pair of float or None
        The factor of scale; the lower and the higher bound of clip.
    """

    kind: str
    tensor: str | None = None
    value: float | tuple[float, float] | None = None

    @classmethod
    def of(cls, step: EpilogueStep) -> Stage:
        """Return the stage of a step of a spec's epilogue."""
        if step.kind == "gelu":
            return cls(f"gelu-{step.value}")
        if isinstance(step.value, float | tuple):  # scale, clip
            return cls(step.kind, value=step.value)
        return cls(step.kind, tensor=step.tensor)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Stage:
        """Read plain data; raises TypeError for other fields."""
        stage = cls(**data)
        return cls(stage.kind, stage.tensor, tuple(stage.value)) if isinstance(stage.value, list) else stage

    @property
    def is_bounded(self) -> bool:
        """Whether its results do not grow with what it is given."""
        return self.kind in _BOUNDED

    def check(self, indices: Mapping[str, str], output: str) -> None:
        """Refuse an unknown kind, and a tensor or numbers that the kind does not take.

        Raises
        ------
        ValueError
            With what is allowed.
        """
        takes_tensor = _STAGES.get(self.kind)
        if takes_tensor is None:
            raise ValueError(f"stage {clip(self.kind)}; allowed: {', '.join(_STAGES)}")
        if takes_tensor != (self.tensor is not None):
            raise ValueError(f"stage {self.kind} of tensor {clip(self.tensor)}")
        if self.tensor is not None and not set(indices[self.tensor]) <= set(output):
            raise ValueError(f"stage {self.kind} reads {clip(indices[self.tensor])}; the output is {output}")
        numbers = self.value if isinstance(self.value, tuple) else () if self.value is None else (self.value,)
        wanted = _NUMBERS.get(self.kind, 0)
        if len(numbers) != wanted or (self.kind == "clip") != isinstance(self.value, tuple):
            raise ValueError(f"stage {self.kind} with value {clip(self.value)}; allowed: {wanted} numbers")
        if not all(math.isfinite(number) for number in numbers) or list(numbers) != sorted(numbers):
            raise ValueError(f"stage {self.kind} with value {clip(self.value)}; allowed: finite, low to high")
