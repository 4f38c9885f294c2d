"""The models of shape variables and joint instances."""

from __future__ import annotations

from bisect import bisect_left
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    StrictStr,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dietcode.workload import field_checks
from dietcode.workload.field_checks import MAX_EXTENT, MAX_LISTED
from dietcode.workload.text import clip

MAX_WEIGHT = 1e12

Extent = Annotated[StrictInt, Field(ge=1, le=MAX_EXTENT)]
Weight = Annotated[float, Field(strict=True, ge=0, le=MAX_WEIGHT, allow_inf_nan=False)]


class SpecModel(BaseModel):
    """A record of a spec: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Weighted(SpecModel):
    """A shape variable with an optional probability weight for each value; unlisted values have weight 0."""

    weights: dict[int, Weight] | None = None

    @field_validator("weights", mode="before")
    @classmethod
    def _read_weights(cls, given: object) -> object:
        return field_checks.weights_by_value(given)

    @field_validator("weights")
    @classmethod
    def _check_weights(cls, given: dict[int, float] | None) -> dict[int, float] | None:
        if given is not None and sum(given.values()) <= 0:
            raise ValueError(f"given {clip(given)}; allowed: at least one positive weight")
        return given

    def _shape_json(self, **extents: object) -> dict[str, Any]:
        if self.weights is None:
            return extents
        return {**extents, "weights": {str(value): weight for value, weight in self.weights.items()}}


class RangeVariable(_Weighted):
    """A shape variable that takes every integer in ``min…max``, both included.

    Parameters
    ----------
    min, max : int
        The smallest value and the largest.
    weights : dict of int to float, optional
        How often each value is seen, values that are not listed never; or the name of a histogram file. Left
        out, all count alike.
    """

    min: Extent
    max: Extent

    @field_validator("max")
    @classmethod
    def _check_order(cls, high: int, info: ValidationInfo) -> int:
        low = info.data.get("min")
        if low is not None and high < low:
            raise ValueError(f"given {high}, below min {low}; allowed: min ≤ max")
        return high

    def __contains__(self, value: object) -> bool:
        """Whether `value` is in the range."""
        return isinstance(value, int) and self.min <= value <= self.max

    def allowed(self) -> str:
        """Return the range in words, for messages."""
        return f"{self.min} to {self.max}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return self._shape_json(min=self.min, max=self.max)


class ValuesVariable(_Weighted):
    """A shape variable that takes the listed values; kept in ascending order.

    Parameters
    ----------
    values : tuple of int
        The values, each once.
    weights : dict of int to float, optional
        As of a range.
    """

    values: tuple[Extent, ...] = Field(min_length=1, max_length=MAX_LISTED)

    @field_validator("values")
    @classmethod
    def _sort(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(given)) != len(given):
            raise ValueError(f"given {clip(list(given))}; allowed: each value once")
        return tuple(sorted(given))

    def __contains__(self, value: object) -> bool:
        """Whether `value` is listed."""
        if not isinstance(value, int):
            return False
        position = bisect_left(self.values, value)  # sorted, and may be long
        return position < len(self.values) and self.values[position] == value

    @property
    def min(self) -> int:
        """The smallest value."""
        return self.values[0]

    @property
    def max(self) -> int:
        """The largest value."""
        return self.values[-1]

    def allowed(self) -> str:
        """Return the values in words, for messages."""
        return f"one of {clip(list(self.values))}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return self._shape_json(values=list(self.values))


def _variable_kind(data: object) -> str | None:
    if isinstance(data, ValuesVariable) or (isinstance(data, dict) and "values" in data):
        return "values"
    return "range" if isinstance(data, RangeVariable | dict) else None


ShapeVariable = Annotated[
    Annotated[RangeVariable, Tag("range")] | Annotated[ValuesVariable, Tag("values")],
    Discriminator(_variable_kind),
]


class JointInstance(SpecModel):
    """One static binding of every shape variable, written ``{I: 768, H: 2304, weight: 1}``.

    Parameters
    ----------
    bindings : dict of str to int
        The value of each shape variable; a spec writes them without this name around them.
    weight : float
        How often this shape is seen, beside the others.
    """

    bindings: dict[StrictStr, Extent]
    weight: Weight = 1.0

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: object) -> object:
        if not isinstance(data, dict) or (
            isinstance(data.get("bindings"), dict) and data.keys() <= {"bindings", "weight"}
        ):
            return data
        bindings = dict(data)
        if "weight" not in bindings:
            return {"bindings": bindings}
        weight = bindings.pop("weight")
        return {"bindings": bindings, "weight": weight}

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.bindings, "weight": self.weight}
