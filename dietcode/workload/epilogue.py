"""Steps applied to each output element after the contraction."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictStr, model_validator

from dietcode.workload.text import clip, suggest

EpilogueKind = Literal[
    "bias", "relu", "silu", "tanh", "sigmoid", "hardswish", "hardsigmoid", "gelu", "clip", "residual", "scale"
]

PLAIN = ("bias", "relu", "silu", "tanh", "sigmoid", "hardswish", "hardsigmoid")
WITH_VALUE = ("gelu", "clip", "residual", "scale")
GELU = ("erf", "tanh")
_LARGEST = 1e30  # number of a step
_ALLOWED = (
    f"allowed: {', '.join(PLAIN)}, {{gelu: erf}}, {{gelu: tanh}}, {{clip: [LOW, HIGH]}}, {{residual: NAME}}, "
    "{scale: NUMBER}"
)


class EpilogueStep(BaseModel):
    """A step of an epilogue.

    Parameters
    ----------
    kind : str
        ``bias`` adds a vector along the last output dimension, or a convolution's output channels,
        ``residual`` adds a tensor of the output's shape, ``scale`` multiplies by a number; the others are
        elementwise.
    value : str, float, pair of float or None
        ``erf`` or ``tanh`` of gelu, the tensor's name of residual, the factor of scale, the bounds of clip.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EpilogueKind
    value: StrictStr | float | tuple[float, float] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: object) -> object:
        return _fields(data)

    @property
    def tensor(self) -> str | None:
        """Name of the tensor that the step reads, if any."""
        if self.kind == "bias":
            return "bias"
        return str(self.value) if self.kind == "residual" else None

    def __str__(self) -> str:
        """Return the step in words: ``relu``, ``gelu erf``, ``clip 0 to 6``."""
        if isinstance(self.value, tuple):
            return f"{self.kind} {self.value[0]:g} to {self.value[1]:g}"
        return self.kind if self.value is None else f"{self.kind} {self.value}"

    def to_json(self) -> str | dict[str, Any]:
        """Return plain data."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return self.kind if value is None else {self.kind: value}


def _fields(data: object) -> object:
    """Return the model's fields from ``relu``, ``{gelu: erf}`` or these fields themselves."""
    if isinstance(data, str):
        return {"kind": _plain(data)}
    if isinstance(data, dict) and set(data) == {"kind", "value"}:
        return _fields(data["kind"] if data["value"] is None else {data["kind"]: data["value"]})
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"given {clip(data)}; {_ALLOWED}")
    ((kind, value),) = data.items()
    return {"kind": kind, "value": _checked_value(kind, value)}


def _plain(given: str) -> str:
    if given in WITH_VALUE:
        raise ValueError(f"given {clip(given)} without its value; {_ALLOWED}")
    if given not in PLAIN:
        raise ValueError(f"given {clip(given)}; {_ALLOWED}{suggest(given, PLAIN + WITH_VALUE)}")
    return given


def _number(value: object) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return None
    return float(value)


def _bounds(given: object) -> tuple[float, float]:
    if isinstance(given, list | tuple) and len(given) == 2:
        low, high = (_number(bound) for bound in given)
        if low is not None and high is not None and low <= high:
            return low, high
    allowed = "allowed: [LOW, HIGH], finite numbers of at most 1e30, the lower one first"
    raise ValueError(f"given clip {clip(given)}; {allowed}")


def _checked_value(kind: object, value: object) -> object:
    if kind == "gelu" and value not in GELU:
        raise ValueError(f"given gelu {clip(value)}; allowed: {' or '.join(GELU)}")
    if kind == "scale":
        factor = _number(value)
        if factor is None:
            raise ValueError(f"given scale {clip(value)}; allowed: a finite number, at most 1e30")
        return factor
    if kind == "clip":
        return _bounds(value)
    if kind == "residual" and not isinstance(value, str):
        raise ValueError(f"given residual {clip(value)}; allowed: the tensor's name")
    if kind not in WITH_VALUE:
        hint = f"; write {kind} without a value" if kind in PLAIN else suggest(kind, PLAIN + WITH_VALUE)
        raise ValueError(f"given {clip({kind: value})}; {_ALLOWED}{hint}")
    return value
