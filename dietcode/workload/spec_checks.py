"""Checks of what the fields of a spec must agree on among themselves."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dietcode.errors import SpecError
from dietcode.workload.block import BlockSpec
from dietcode.workload.block_extents import check_block_extents
from dietcode.workload.contraction import Contraction
from dietcode.workload.conv2d import check_groups, check_indices
from dietcode.workload.dtypes import INDEX_DTYPE, INPUT_DTYPES
from dietcode.workload.field_checks import MAX_EXTENT, MAX_RANK
from dietcode.workload.operators import INTEGERS
from dietcode.workload.polynomial import MAX_NAME_CHARS
from dietcode.workload.pooling import PoolAxis
from dietcode.workload.quotient import Dim, bounds
from dietcode.workload.sizes import largest_sizes
from dietcode.workload.spec_fields import SpecFields, TensorSpec
from dietcode.workload.text import clip, field_path, suggest

MAX_VARIABLES = 4
MAX_ELEMENTS = 2**34
MAX_FLOPS = 2**53  # counted exactly as floats
_NUM_OPERANDS = 2
MAX_TENSORS = 32  # of a block
RESERVED = frozenset({"out", "num_threads", "self"})  # keywords of a call
_RESERVED_OF_VARIABLES = frozenset({"weight"})  # of a joint instance

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_spec(spec: SpecFields) -> None:
    """Check everything that involves more than one field.

    Raises
    ------
    SpecError
        With the path of the field to change.
    """
    for error in _disagreements(spec):
        raise error


def disagreements(spec: SpecFields) -> list[SpecError]:
    """Return all errors that involve more than one field; none where that depends on what is wrong already.

    The first of them is the one that `check_spec` raises.
    """
    return list(_disagreements(spec))


def _disagreements(spec: SpecFields) -> Iterator[SpecError]:
    """Yield the errors of each stage, and go on to the next one only where there were none.

    An einsum's own text has its indices, so that dtypes and dims are compared with it whatever its operands
    say.
    """
    found = False
    for number, stage in enumerate(_STAGES):
        for check in stage:
            try:
                for error in check(spec) or ():
                    found = True
                    yield error
            except SpecError as error:
                found = True
                yield error
        if found and (number > 0 or spec.op.einsum is None):
            return


def _check_names(spec: SpecFields) -> None:
    """Refuse names that a call could not use, or that mean two things."""
    if not 1 <= len(spec.shape_vars) <= MAX_VARIABLES:
        given = f"given {len(spec.shape_vars)} shape variables"
        raise SpecError("shape_vars", f"{given}; allowed: 1 to {MAX_VARIABLES}")
    named = [(f"op.epilogue.{i}", step.tensor) for i, step in enumerate(spec.op.epilogue) if step.tensor]
    taken: dict[str, str] = dict.fromkeys(RESERVED, "a reserved word")
    if spec.op.block is None:
        taken["bias"] = "reserved for the epilogue"
    for path, name in _user_names(spec):
        _check_identifier(path, name)
        if name in _RESERVED_OF_VARIABLES and path.startswith("shape_vars."):
            taken[name] = "a reserved word of instances"
        if name in taken:
            raise SpecError(path, f"given the name {name!r}, {taken[name]}; allowed: another name")
        taken[name] = f"already used by {path}"
    taken.pop("bias", None)
    for path, name in named:
        _check_identifier(path, name)
        if name in taken:
            raise SpecError(path, f"given the name {name!r}, {taken[name]}; allowed: another name, once")
        taken[name] = f"already used by {path}"


def _user_names(spec: SpecFields) -> Iterable[tuple[str, str]]:
    for name in spec.tensors:
        yield field_path(["tensors", name]), name
    if spec.op.block is None:
        yield "output.name", spec.output.name
    else:
        for name in spec.op.block.graph:
            yield field_path(["op", "block", "graph", name]), name
    for name in spec.shape_vars:
        yield field_path(["shape_vars", name]), name


def _check_identifier(path: str, name: str) -> None:
    if not _IDENTIFIER.fullmatch(name) or len(name) > MAX_NAME_CHARS or keyword.iskeyword(name):
        allowed = f"a Python identifier of at most {MAX_NAME_CHARS} ASCII characters, no keyword"
        raise SpecError(path, f"given the name {clip(name)}; allowed: {allowed}")


def _check_operands(spec: SpecFields) -> Iterator[SpecError]:
    if spec.op.block is not None:
        _check_block(spec)
        return
    if len(spec.tensors) != _NUM_OPERANDS:
        raise SpecError("tensors", f"given {len(spec.tensors)} tensors; allowed: the 2 operands of {spec.op}")
    if spec.op.convolution is not None:
        check_indices(spec.op.convolution, spec.operand_indices)
        return
    inputs = str(spec.op.einsum).partition("->")[0].split(",")
    for (name, tensor), indices in zip(spec.tensors.items(), inputs, strict=True):
        if tensor.dims != indices:
            problem = f"given {clip(tensor.dims)}; allowed: {indices}, as in {spec.op.einsum}, in its order"
            yield SpecError(f"tensors.{name}.dims", problem)


def _check_block(spec: SpecFields) -> None:
    """Refuse tensors without plain indices, and a graph that does not fit together."""
    if not 1 <= len(spec.tensors) <= MAX_TENSORS:
        raise SpecError("tensors", f"given {len(spec.tensors)} tensors; allowed: 1 to {MAX_TENSORS}")
    for name, tensor in spec.tensors.items():
        dims = tensor.dims
        fits = dims.isascii() and dims.isalpha() and len(set(dims)) == len(dims) <= MAX_RANK
        if not fits:
            problem = f"given {clip(dims)}; allowed: 1 to {MAX_RANK} letters, each once"
            raise SpecError(field_path(["tensors", name, "dims"]), problem)
    assert spec.block is not None  # raises what is wrong with the graph


def _check_dtypes(spec: SpecFields) -> Iterator[SpecError]:
    """Give an error for each operand of a dtype that the target lacks, else for two dtypes."""
    if spec.op.block is not None:
        _check_block_dtypes(spec, spec.op.block)
        return
    if len(spec.tensors) != _NUM_OPERANDS:
        return  # that is said already
    allowed = INPUT_DTYPES[:1] if spec.target.kind == "llvm" else INPUT_DTYPES
    errors = list(_operand_dtype_errors(spec.tensors, allowed))
    (first, one), (second, other) = spec.tensors.items()
    if not errors and one.dtype != other.dtype:
        problem = f"given {clip(other.dtype)}; allowed: {one.dtype}, as tensors.{first} has it"
        errors.append(SpecError(f"tensors.{second}.dtype", problem))
    yield from errors


def _check_block_dtypes(spec: SpecFields, block: BlockSpec) -> None:
    integers = {n.operands[1]: INTEGERS[n.operator] for n in block.graph.values() if n.operator in INTEGERS}
    integers |= {one.at: INTEGERS["gather"] for one in block.outputs}
    for name in integers:
        given = spec.tensors[name].dtype if name in spec.tensors else INDEX_DTYPE
        if given != INDEX_DTYPE:
            problem = f"given {clip(given)}; allowed on this target: {INDEX_DTYPE}, {integers[name]}"
            raise SpecError(f"tensors.{name}.dtype", problem)
    values = {name: tensor for name, tensor in spec.tensors.items() if name not in integers}
    known = INPUT_DTYPES[:1] if spec.target.kind == "llvm" else INPUT_DTYPES
    for error in _operand_dtype_errors(values, known):
        raise error
    for name, tensor in values.items():
        if tensor.dtype != spec.operand_dtype:
            first = next(iter(values))
            problem = f"given {clip(tensor.dtype)}; allowed: {spec.operand_dtype}, as tensors.{first} has it"
            raise SpecError(f"tensors.{name}.dtype", problem)


def check_operand_dtypes(spec: SpecFields, allowed: Sequence[str] = INPUT_DTYPES[:1]) -> None:
    """Refuse operands of another dtype than a target takes, by default a CPU.

    Raises
    ------
    SpecError
        With the field, what was given and what is allowed.
    """
    values = {name: tensor for name, tensor in spec.tensors.items() if tensor.dtype != INDEX_DTYPE}
    for error in _operand_dtype_errors(values, allowed):
        raise error


def _operand_dtype_errors(tensors: Mapping[str, TensorSpec], allowed: Sequence[str]) -> Iterator[SpecError]:
    for name, tensor in tensors.items():
        if tensor.dtype not in allowed:
            problem = f"given {clip(tensor.dtype)}; allowed on this target: {', '.join(allowed)}"
            needs = "; it needs a target of kind cuda" if tensor.dtype in INPUT_DTYPES else ""
            yield SpecError(f"tensors.{name}.dtype", problem + needs)


def _check_dims(spec: SpecFields) -> Iterator[SpecError]:
    following = {one.output for one in _pool_axes(spec)}
    einsum = str(spec.op.einsum).partition("->")[0].replace(",", "")
    of_operands = einsum if spec.op.einsum is not None else "".join(spec.operand_indices.values())
    indices = sorted(set(of_operands) - following)
    for index in spec.dims:
        if index not in indices:
            problem = f"not an index of {spec.op}; allowed: {', '.join(indices)}"
            yield SpecError(field_path(["dims", index]), problem)
    for index in indices:
        if index not in spec.dims:
            yield SpecError(f"dims.{index}", "missing; every index needs an extent, like 768 or 16*T")
    for index, dim in spec.dims_given.items():
        for name in dim.variables:
            if name not in spec.shape_vars:
                allowed = ", ".join(spec.variables)
                problem = f"given {clip(str(dim))}; {name!r} is no shape variable; allowed: {allowed}"
                yield SpecError(f"dims.{index}", problem + suggest(name, spec.variables))
        if not set(dim.variables) <= set(spec.shape_vars):
            continue
        largest = dim.evaluate({name: variable.max for name, variable in spec.shape_vars.items()})
        if largest > MAX_EXTENT:
            yield SpecError(f"dims.{index}", f"given {clip(str(dim))}, up to {largest}; allowed: up to 2**31")
    used = {name for dim in spec.dims_given.values() for name in dim.variables}
    for name in spec.variables:
        if name not in used:
            yield SpecError(f"shape_vars.{name}", "is in no dimension of dims; use it there, or leave it out")


def _check_roles(spec: SpecFields) -> None:
    if spec.block is None:
        Contraction.from_spec(spec)
        return
    check_block_extents(spec.block, spec.operand_indices, spec.dims_given)
    if spec.block.form == "attention" and spec.constants:
        problem = "given true; allowed in attention: false, for nothing of it is packed ahead"
        raise SpecError(field_path(["tensors", spec.constants[0], "constant"]), problem)


def _check_convolution(spec: SpecFields) -> None:
    """Refuse groups that do not divide, and an output that a small shape would leave empty."""
    conv = spec.convolution
    if conv is None:
        return
    check_groups(conv, spec.dims_given)
    low = {name: variable.min for name, variable in spec.shape_vars.items()}
    high = {name: variable.max for name, variable in spec.shape_vars.items()}
    for slide in conv.slides:
        axis, positions = spec.dims_given[slide.axis], spec.dims_parsed[slide.output]
        least, greatest = bounds(positions, low, high)
        path, given = f"dims.{slide.axis}", f"given {clip(str(axis))}"
        if least < 1:
            sides = slide.padding, slide.padding_after
            window = _window_text(spec.dims_given[slide.kernel], slide.dilation, sides)
            problem = f"{given}; an output of extent {least} at the smallest shape; allowed: {window}"
            raise SpecError(path, problem)
        if greatest > MAX_EXTENT:
            raise SpecError(path, f"{given}; an output of extent {greatest}; allowed: up to 2**31")


def _window_text(kernel: Dim | str, dilation: int, padding: tuple[int, int]) -> str:
    """The least extent of an axis that a window fits into, in words."""
    text = f"{kernel}" if dilation == 1 else f"{dilation}*({kernel} - 1) + 1"
    before, after = padding
    less = f"twice the padding of {before}" if before == after else f"the padding of {before} and {after}"
    return f"at least the window, {text}" + (f", less {less}" if before or after else "")


def _pool_axes(spec: SpecFields) -> list[PoolAxis]:
    return [] if spec.block is None else [one for axes in spec.block.pool_axes.values() for one in axes]


def _check_pooling(spec: SpecFields) -> None:
    """Refuse an output that a small shape would leave empty."""
    low = {name: variable.min for name, variable in spec.shape_vars.items()}
    high = {name: variable.max for name, variable in spec.shape_vars.items()}
    for one in _pool_axes(spec):
        least, _ = bounds(spec.dims_parsed[one.output], low, high)
        if least < 1:
            given = f"given {clip(str(spec.dims_given[one.axis]))}; an output of extent {least}"
            allowed = _window_text(str(one.window), 1, (one.padding, one.padding_after))
            raise SpecError(f"dims.{one.axis}", f"{given} at the smallest shape; allowed: {allowed}")


def _check_instances(spec: SpecFields) -> None:
    variables, shape_vars = spec.variables, spec.shape_vars  # there may be tens of thousands of instances
    seen: set[tuple[int, ...]] = set()
    for number, instance in enumerate(spec.instances):
        bindings = instance.bindings
        for name, value in bindings.items():
            if name not in shape_vars:
                allowed = ", ".join((*variables, "weight"))
                hint = suggest(name, (*variables, "weight"))
                path = field_path(["instances", str(number), name])
                raise SpecError(path, f"unknown field; allowed: {allowed}{hint}")
            if value not in shape_vars[name]:
                problem = f"given {value}; allowed: {shape_vars[name].allowed()}"
                raise SpecError(f"instances.{number}.{name}", problem)
        try:
            binding = tuple([bindings[name] for name in variables])
        except KeyError as error:
            path = f"instances.{number}.{error.args[0]}"
            raise SpecError(path, "missing; every shape variable is bound") from None
        if binding in seen:
            twice = "the same binding is given twice; allowed: once, with the summed weight"
            raise SpecError(f"instances.{number}", twice)
        seen.add(binding)
    if spec.instances:
        _check_instance_weights(spec)


def _check_weights(spec: SpecFields) -> None:
    for name, variable in spec.shape_vars.items():
        for value in variable.weights or ():
            if value not in variable:
                problem = f"given a weight for {value}; allowed: {variable.allowed()}"
                raise SpecError(f"shape_vars.{name}.weights", problem)


def _check_instance_weights(spec: SpecFields) -> None:
    if sum(instance.weight for instance in spec.instances) <= 0:
        raise SpecError("instances", "every weight is 0; allowed: at least one positive weight")
    for name, variable in spec.shape_vars.items():
        if variable.weights is not None:
            problem = "instances are given, with weights of their own; allowed: either of the two"
            raise SpecError(f"shape_vars.{name}.weights", problem)


def _check_sizes(spec: SpecFields) -> None:
    """Refuse tensors above 2**34 elements, and FLOPs above 2**53, at the largest instance."""
    sizes = largest_sizes(spec)
    for path, largest in sizes.elements.items():
        if largest > MAX_ELEMENTS:
            problem = f"{largest:.4g} elements at the largest instance; allowed: at most 2**34"
            raise SpecError(path, problem)
    if sizes.flops > MAX_FLOPS:
        raise SpecError("dims", f"{sizes.flops:.4g} FLOPs at the largest instance; allowed: at most 2**53")


# The checks of one stage need only what the stages before have made sure of.
_STAGES: tuple[tuple[Callable[[SpecFields], Iterable[SpecError] | None], ...], ...] = (
    (_check_names, _check_operands),
    (_check_dtypes, _check_dims),
    (_check_roles,),
    (_check_convolution, _check_pooling, _check_weights, _check_instances),
    (_check_sizes,),
)
