"""The models of a workload spec, each field checked by itself; `spec_checks` compares them."""

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
from dietcode.workload import field_checks
from dietcode.workload.block import BlockSpec
from dietcode.workload.block_graph import BlockGraph
from dietcode.workload.conv1d import Conv1d
from dietcode.workload.conv2d import Conv2d, ConvolutionIndices
from dietcode.workload.dtypes import INDEX_DTYPE, OUTPUT_DTYPES
from dietcode.workload.epilogue import EpilogueStep
from dietcode.workload.expr import DimExpr
from dietcode.workload.field_checks import MAX_LISTED
from dietcode.workload.quotient import Dim
from dietcode.workload.target_spec import TargetSpec
from dietcode.workload.text import clip
from dietcode.workload.variables import JointInstance, ShapeVariable, SpecModel

Fraction = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_KINDS = ("einsum", "conv2d", "conv1d", "block")
_ONE_DTYPE = "float32"  # of a block's results where its tensors have none


def _known_dtype(given: str, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise ValueError(f"given {clip(given)}; allowed on this target: {', '.join(allowed)}")
    return given


class OpSpec(SpecModel):
    """An operator of two operands and what is done to its result, or a block: exactly one of the kinds.

    Parameters
    ----------
    einsum : str, optional
        Like ``mk,nk->mn``: two operands in the order of `tensors`, one letter an axis, explicit output.
    conv2d : Conv2d, optional
        The operands are the data and the kernel, in this order.
    conv1d : Conv1d, optional
        The same along one axis.
    block : BlockSpec, optional
        A small graph of operators, see [blocks](blocks.md); it has its outputs in it, and no epilogue.
    epilogue : tuple of EpilogueStep
        Applied in this order to each output element.
    """

    einsum: StrictStr | None = None
    conv2d: Conv2d | None = None
    conv1d: Conv1d | None = None
    block: BlockSpec | None = None
    epilogue: tuple[EpilogueStep, ...] = Field(default=(), max_length=16)

    @field_validator("einsum")
    @classmethod
    def _check_einsum(cls, text: str | None) -> str | None:
        return None if text is None else field_checks.canonical_einsum(text)

    @model_validator(mode="after")
    def _check_kind(self) -> OpSpec:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            said = {0: "missing", 2: "given both"}.get(len(given), f"given {len(given)}")
            raise ValueError(f"{said}; allowed: exactly one of {', '.join(_KINDS)}")
        if self.block is not None and self.epilogue:
            raise ValueError("given a block and an epilogue; allowed: nodes of the block instead")
        return self

    def __str__(self) -> str:
        """Return the operator in one short line."""
        if self.block is not None:
            words = dict.fromkeys(node.operator for node in self.block.graph.values())
            return f"block of {', '.join(words)}"
        if self.convolution is None:
            return str(self.einsum)
        conv = self.convolution
        return f"{conv.kind} of {conv.data_layout} and {conv.kernel_layout}"

    @property
    def whole(self) -> str:
        """The operator and its epilogue in one line: ``mk,nk->mn, then bias, gelu erf``."""
        after = ", ".join(map(str, self.epilogue))
        return f"{self}, then {after}" if after else str(self)

    @property
    def convolution(self) -> Conv2d | Conv1d | None:
        """The options of a convolution; None for any other operator."""
        return self.conv1d if self.conv2d is None else self.conv2d

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        if self.block is not None:
            return {"block": self.block.to_json()}
        conv = self.convolution
        kind = {"einsum": self.einsum} if conv is None else {conv.kind: conv.to_json()}
        return {**kind, "epilogue": [step.to_json() for step in self.epilogue]}


class TensorSpec(SpecModel):
    """An operand.

    Parameters
    ----------
    dims : str
        Its indices, one letter an axis.
    dtype : str
        ``float32``; on cuda also ``float16`` or ``bfloat16``, all operands alike; ``int32`` for positions
        whose rows a block gathers.
    constant : bool
        Whether it may be packed once, ahead of time.
    """

    dims: StrictStr
    dtype: StrictStr
    constant: StrictBool = False


class OutputSpec(SpecModel):
    """The output; its axes follow from the operator.

    Parameters
    ----------
    name : str
        What messages and manifests call it.
    dtype : str
        ``float32``, ``float16`` or ``bfloat16``, which results are rounded to.
    """

    name: StrictStr = "Y"
    dtype: StrictStr = "float32"

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, given: str) -> str:
        return _known_dtype(given, OUTPUT_DTYPES)


class Budget(SpecModel):
    """The limits of a job, which stops at the first that it reaches.

    Parameters
    ----------
    trials : int
        Most candidates that are measured; one in four, at most 32, goes to the seed where MetaSchedule runs.
    seconds : float
        Most seconds of measuring; the library is built from what was measured until then. Where the device
        is calibrated first, which is kept for later jobs, up to half as many are added.
    """

    trials: StrictInt = Field(default=128, ge=1, le=1_000_000)
    seconds: float = Field(default=300.0, strict=True, gt=0, le=30 * 86400, allow_inf_nan=False)


class ObjectiveSpec(SpecModel):
    """The objective of selection.

    Parameters
    ----------
    binary_size : float
        Mean performance given up for a smaller library, as a fraction in [0, 1).
    max_loss : float, optional
        Largest fraction of performance that any instance may give up.
    max_kernels, max_bytes : int, optional
        Most micro-kernels, most bytes of ``library.so``, with all that is in it.
    weight : None or "flops"
        ``flops`` weighs instances by their FLOPs: the paper's Equation 1.
    reproducible : bool
        Whether the bits of a row must not depend on the shape that it is part of. On a CPU they never do; on
        a GPU micro-kernels are chosen that add in one order: with one split of the reduction, on one unit.
    """

    binary_size: Fraction = 0.02
    max_loss: Fraction | None = None
    max_kernels: Annotated[StrictInt, Field(ge=1, le=100_000)] | None = None
    max_bytes: Annotated[StrictInt, Field(ge=1, le=2**53 - 1)] | None = None
    weight: Literal["flops"] | None = None
    reproducible: StrictBool = False


class SpecFields(SpecModel):
    """The fields of a `dietcode.workload.spec.Spec`, not yet compared with each other."""

    name: StrictStr
    op: OpSpec
    tensors: dict[StrictStr, TensorSpec]
    output: OutputSpec = OutputSpec()
    accumulate: StrictStr = "float32"
    shape_vars: dict[StrictStr, ShapeVariable]
    instances: tuple[JointInstance, ...] = Field(default=(), max_length=MAX_LISTED)
    dims: dict[StrictStr, StrictInt | StrictStr]
    target: TargetSpec = TargetSpec(kind="llvm")
    budget: Budget = Budget()
    objective: ObjectiveSpec = ObjectiveSpec()

    @model_validator(mode="before")
    @classmethod
    def _output_of_block(cls, given: object) -> object:
        """Fill in the field `output`, which says again what a block says."""
        op = given.get("op") if isinstance(given, dict) else None
        block = op.get("block") if isinstance(op, dict) else None
        if not isinstance(given, dict) or block is None:
            return given
        if "output" in given:
            raise SpecError("output", "given beside a block; allowed: its results in op.block.outputs alone")
        outputs = block.get("outputs") if isinstance(block, dict) else None
        first = outputs[0] if isinstance(outputs, list | tuple) and outputs else ""
        name = next(iter(first), "") if isinstance(first, dict) else first
        tensors = given.get("tensors")
        every = tensors.values() if isinstance(tensors, dict) else ()
        dtypes = [own.get("dtype") for own in every if isinstance(own, dict)]
        dtype = next((one for one in OUTPUT_DTYPES if one in dtypes), _ONE_DTYPE)
        return {**given, "output": {"name": str(name), "dtype": dtype}}

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
        return _known_dtype(given, ("float32",))

    @field_validator("instances", mode="before")
    @classmethod
    def _refuse_file(cls, given: object) -> object:
        return field_checks.no_file(given, "a list of bindings")

    @field_validator("dims", mode="before")
    @classmethod
    def _canonical_dims(cls, given: object) -> object:
        return field_checks.canonical_dims(given)

    @field_validator("target", mode="before")
    @classmethod
    def _read_target(cls, given: object) -> object:
        return TargetSpec.from_plain(given)

    @cached_property
    def dims_given(self) -> Mapping[str, DimExpr]:
        """The extent of each index of the operands, as `dims` gives it."""
        return {index: DimExpr.parse(dim, f"dims.{index}") for index, dim in self.dims.items()}

    @cached_property
    def dims_parsed(self) -> Mapping[str, Dim]:
        """The extent of each index: of `dims`, and those of windows that follow from them."""
        following = self.block if self.convolution is None else self.convolution
        derived = {} if following is None else following.derived(self.dims_given)
        return {**self.dims_given, **derived}

    @cached_property
    def convolution(self) -> ConvolutionIndices | None:
        """The indices of a convolution; None for any other operator."""
        if self.op.convolution is None:
            return None
        data, kernel = self.operand_indices.values()
        return ConvolutionIndices.of(self.op.convolution, data, kernel, self.dims_given)

    @cached_property
    def block(self) -> BlockGraph | None:
        """The parts of a block put together; None for any other operator."""
        return None if self.op.block is None else BlockGraph.of(self.op.block, self.operand_indices)

    @property
    def outputs(self) -> dict[str, str]:
        """Indices of each output as callers see it, in the order in which a call returns them."""
        if self.block is not None:
            return {name: self.block.indices[self.block.stored_as(name)] for name in self.block.outputs}
        return {self.output.name: self.output_indices}

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the shape variables, in declaration order."""
        return tuple(self.shape_vars)

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the operands that may be packed once."""
        return tuple(name for name, tensor in self.tensors.items() if tensor.constant)

    @property
    def operand_dtype(self) -> str:
        """The dtype of the operands, positions apart, and of the epilogue's tensors."""
        dtypes = (tensor.dtype for tensor in self.tensors.values())
        return next((dtype for dtype in dtypes if dtype != INDEX_DTYPE), _ONE_DTYPE)

    @property
    def operand_indices(self) -> dict[str, str]:
        """Indices of each operand as callers see it, in the order of the operator."""
        return {name: tensor.dims for name, tensor in self.tensors.items()}

    @property
    def output_indices(self) -> str:
        """Indices of the output as callers see it."""
        if self.convolution is not None:
            return self.convolution.output_indices
        if self.block is not None:
            return self.block.indices[self.output.name]
        return (self.op.einsum or "").partition("->")[2]

    @property
    def bias_index(self) -> str:
        """Index that a bias has: the output's last one, or a convolution's output channels."""
        conv = self.convolution
        return self.output_indices[-1] if conv is None else conv.output["C"]

    @property
    def epilogue_tensors(self) -> dict[str, str]:
        """Indices of each tensor that the epilogue needs: `bias` and residuals."""
        return {
            step.tensor: self.bias_index if step.kind == "bias" else self.output_indices
            for step in self.op.epilogue
            if step.tensor is not None
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain data that parses to an equal spec: defaults filled in, canonical text of dims."""
        output = {"output": self.output.model_dump()} if self.op.block is None else {}
        return {
            "name": self.name,
            "op": self.op.to_json(),
            "tensors": {name: tensor.model_dump() for name, tensor in self.tensors.items()},
            **output,
            "accumulate": self.accumulate,
            "shape_vars": {name: variable.to_json() for name, variable in self.shape_vars.items()},
            "instances": [instance.to_json() for instance in self.instances],
            "dims": dict(self.dims),
            "target": self.target.to_json(),
            "budget": self.budget.model_dump(),
            "objective": self.objective.model_dump(),
        }
