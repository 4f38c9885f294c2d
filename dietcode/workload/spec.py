"""The models of a workload spec. What fields must agree on among themselves stands in `checks`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

from dietcode.errors import SpecError
from dietcode.workload import checks
from dietcode.workload.checks import MAX_LISTED
from dietcode.workload.epilogue import EpilogueStep
from dietcode.workload.expr import DimExpr
from dietcode.workload.target_spec import TargetSpec
from dietcode.workload.text import clip
from dietcode.workload.variables import (
    JointInstance,
    Model,
    RangeVariable,
    ShapeVariable,
    ValuesVariable,
)

DTYPES = ("float32",)

Fraction = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)]

__all__ = [
    "Budget",
    "EinsumOp",
    "JointInstance",
    "Objective",
    "OutputSpec",
    "RangeVariable",
    "Spec",
    "TargetSpec",
    "TensorSpec",
    "ValuesVariable",
]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def _known_dtype(given: str) -> str:
    if given not in DTYPES:
        raise ValueError(f"given {clip(given)}; allowed on this target: {', '.join(DTYPES)}")
    return given


class EinsumOp(Model):
    """A two-operand contraction and what is done to its result.

    Parameters
    ----------
    einsum : str
        Like ``mk,nk->mn``: two operands in the order of `Spec.tensors`, one letter an axis, explicit output.
    epilogue : tuple of EpilogueStep
        Applied in this order to each output element.
    """

    einsum: StrictStr
    epilogue: tuple[EpilogueStep, ...] = Field(default=(), max_length=16)

    @model_validator(mode="before")
    @classmethod
    def _refuse_conv2d(cls, data: object) -> object:
        if isinstance(data, dict) and "conv2d" in data:
            raise SpecError("op.conv2d", "conv2d is not supported by this version; allowed: einsum")
        return data

    @field_validator("einsum")
    @classmethod
    def _check_einsum(cls, text: str) -> str:
        return checks.canonical_einsum(text)

    @property
    def input_subscripts(self) -> tuple[str, str]:
        """Subscripts of the two operands."""
        first, second = self.einsum.partition("->")[0].split(",")
        return first, second

    @property
    def output_subscripts(self) -> str:
        """Subscripts of the output."""
        return self.einsum.partition("->")[2]


class TensorSpec(Model):
    """An operand.

    Parameters
    ----------
    dims : str
        Its subscripts, one letter an axis.
    dtype : str
        ``float32``.
    constant : bool
        Whether it may be packed once, ahead of time.
    """

    dims: StrictStr
    dtype: StrictStr
    constant: StrictBool = False

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, given: str) -> str:
        return _known_dtype(given)


class OutputSpec(Model):
    """The output's name and dtype; its axes follow from the einsum."""

    name: StrictStr
    dtype: StrictStr

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, given: str) -> str:
        return _known_dtype(given)


class Budget(Model):
    """When to stop: after `trials` measured candidates, or `seconds` of tuning, whichever is first."""

    trials: StrictInt = Field(default=128, ge=1, le=1_000_000)
    seconds: float = Field(default=300.0, strict=True, gt=0, le=30 * 86400, allow_inf_nan=False)


class Objective(Model):
    """What selection optimises.

    Parameters
    ----------
    binary_size : float
        Mean performance given up for a smaller library, as a fraction in [0, 1).
    max_loss : float, optional
        Largest fraction of performance that any instance may give up.
    max_kernels, max_bytes : int, optional
        Most micro-kernels, most bytes of the library.
    weight : None or "flops"
        ``flops`` weighs instances by their FLOPs: the paper's Equation 1.
    reproducible : bool
        Whether a row's bits may not depend on the shape it came in; every micro-kernel keeps to it anyway.
    """

    binary_size: Fraction = 0.02
    max_loss: Fraction | None = None
    max_kernels: Annotated[StrictInt, Field(ge=1, le=100_000)] | None = None
    max_bytes: Annotated[StrictInt, Field(ge=1, le=2**53 - 1)] | None = None
    weight: Literal["flops"] | None = None
    reproducible: StrictBool = False


class Spec(Model):
    """A workload spec, valid as a whole; `dietcode.workload.parse` makes one from text or plain data."""

    name: StrictStr
    op: EinsumOp
    tensors: dict[StrictStr, TensorSpec]
    output: OutputSpec
    accumulate: StrictStr = "float32"
    shape_vars: dict[StrictStr, ShapeVariable]
    instances: tuple[JointInstance, ...] = Field(default=(), max_length=MAX_LISTED)
    dims: dict[StrictStr, StrictInt | StrictStr]
    target: TargetSpec = TargetSpec(kind="llvm")
    budget: Budget = Budget()
    objective: Objective = Objective()

    @field_validator("name")
    @classmethod
    def _check_name(cls, given: str) -> str:
        if not _NAME.fullmatch(given) or ".." in given:
            raise ValueError(
                f"given {clip(given)}; allowed: 1 to 64 of a-z, 0-9, '.', '_', '-', "
                "a letter or digit first, without '..' or a path"
            )
        return given

    @field_validator("accumulate")
    @classmethod
    def _check_accumulate(cls, given: str) -> str:
        return _known_dtype(given)

    @field_validator("instances", mode="before")
    @classmethod
    def _refuse_file(cls, given: object) -> object:
        return checks.no_file(given, "a list of bindings")

    @field_validator("dims", mode="before")
    @classmethod
    def _canonical_dims(cls, given: object) -> object:
        return checks.canonical_dims(given)

    @field_validator("target", mode="before")
    @classmethod
    def _read_target(cls, given: object) -> object:
        return TargetSpec.from_plain(given)

    @model_validator(mode="after")
    def _check_whole(self) -> Spec:
        checks.check_spec(self)
        return self

    @cached_property
    def dims_parsed(self) -> Mapping[str, DimExpr]:
        """The extent of each index letter."""
        return {letter: DimExpr.parse(dim, f"dims.{letter}") for letter, dim in self.dims.items()}

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the shape variables, in declaration order."""
        return tuple(self.shape_vars)

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the operands that may be packed once."""
        return tuple(name for name, tensor in self.tensors.items() if tensor.constant)

    @property
    def subscripts(self) -> dict[str, str]:
        """Subscripts of each operand, in the einsum's order."""
        return {name: tensor.dims for name, tensor in self.tensors.items()}

    @property
    def epilogue_tensors(self) -> dict[str, str]:
        """Subscripts of each tensor that the epilogue needs: `bias` and residuals."""
        output = self.op.output_subscripts
        steps = [(step.tensor, step.kind) for step in self.op.epilogue]
        return {name: output[-1:] if kind == "bias" else output for name, kind in steps if name is not None}

    def to_json(self) -> dict[str, Any]:
        """Return plain data that parses to an equal spec: defaults filled in, canonical text of dims."""
        return {
            "name": self.name,
            "op": {"einsum": self.op.einsum, "epilogue": [step.to_json() for step in self.op.epilogue]},
            "tensors": {name: tensor.model_dump() for name, tensor in self.tensors.items()},
            "output": self.output.model_dump(),
            "accumulate": self.accumulate,
            "shape_vars": {name: variable.to_json() for name, variable in self.shape_vars.items()},
            "instances": [instance.to_json() for instance in self.instances],
            "dims": dict(self.dims),
            "target": self.target.to_json(),
            "budget": self.budget.model_dump(),
            "objective": self.objective.model_dump(),
        }
