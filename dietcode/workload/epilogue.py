"""Steps applied to each output element after the contraction."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictStr, model_validator

from dietcode.workload.text import clip, suggest

EpilogueKind = Literal["bias", "relu", "silu", "gelu", "residual", "scale"]

PLAIN = ("bias", "relu", "silu")
WITH_VALUE = ("gelu", "residual", "scale")
GELU = ("erf", "tanh")
_ALLOWED = "allowed: bias, relu, silu, {gelu: erf}, {gelu: tanh}, {residual: NAME}, {scale: NUMBER}"


class EpilogueStep(BaseModel):
    """A step of an epilogue.

    Parameters
    ----------
    kind : str
        ``bias`` adds a vector along the last output dimension, or a convolution's output channels,
        ``residual`` adds a tensor of the output's shape, ``scale`` multiplies by a number; ``relu``, ``silu``
        and ``gelu`` are elementwise.
    value : str, float or None
        ``erf`` or ``tanh`` of gelu, the tensor's name of residual, the factor of scale.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EpilogueKind
    value: StrictStr | float | None = None

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

    def to_json(self) -> str | dict[str, Any]:
        """Return plain data."""
        return self.kind if self.value is None else {self.kind: self.value}


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


def _checked_value(kind: object, value: object) -> object:
    if kind == "gelu" and value not in GELU:
        raise ValueError(f"given gelu {clip(value)}; allowed: {' or '.join(GELU)}")
    if kind == "scale":
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e30:
            raise ValueError(f"given scale {clip(value)}; allowed: a finite number, at most 1e30")
        return float(value)
    if kind == "residual" and not isinstance(value, str):
        raise ValueError(f"given residual {clip(value)}; allowed: the tensor's name")
    if kind not in WITH_VALUE:
        hint = f"; write {kind} without a value" if kind in PLAIN else suggest(kind, PLAIN + WITH_VALUE)
        raise ValueError(f"given {clip({kind: value})}; {_ALLOWED}{hint}")
    return value
