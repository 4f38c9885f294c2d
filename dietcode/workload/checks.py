"""What the fields of a spec must agree on among themselves."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dietcode.errors import SpecError
from dietcode.workload.contraction import Contraction
from dietcode.workload.expr import DimExpr
from dietcode.workload.polynomial import MAX_NAME_CHARS
from dietcode.workload.text import clip, field_path, suggest

if TYPE_CHECKING:
    from dietcode.workload.spec import Spec

MAX_VARIABLES = 4
MAX_RANK = 6
MAX_EXTENT = 2**31
MAX_ELEMENTS = 2**34
MAX_LISTED = 100_000
MAX_DIMS = 52  # letters there are
RESERVED = frozenset({"out", "num_threads", "self", "weight"})  # keywords of a call, and of a joint instance

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EINSUM = re.compile(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]*)")
_INTEGER = re.compile(r"[1-9][0-9]{0,9}")


def canonical_einsum(text: str) -> str:
    """Return an einsum of two operands without spaces.

    Raises
    ------
    ValueError
        Not of the form ``mk,nk->mn``, a letter repeated within a tensor, or a rank above 6.
    """
    match = _EINSUM.fullmatch(text.replace(" ", "")) if len(text) <= 100 else None
    if match is None:
        hint = (
            "an ellipsis is not supported"
            if "..." in text
            else "two operands and an output, one letter an axis"
        )
        raise ValueError(f"given {clip(text)}; {hint}; allowed: like mk,nk->mn")
    for subscripts in match.groups():
        if len(set(subscripts)) != len(subscripts):
            raise ValueError(
                f"given {clip(text)}; a letter is repeated in {subscripts!r}; allowed: each once"
            )
        if len(subscripts) > MAX_RANK:
            raise ValueError(f"given {clip(text)}; allowed: at most {MAX_RANK} axes a tensor")
    return match[0]


def canonical_dims(given: object) -> object:
    """Return dims with an int for each constant and canonical text for each expression.

    Raises
    ------
    SpecError
        A value is no dimension, or is 0.
    """
    if not isinstance(given, dict):
        return given  # the model's own message will do
    if len(given) > MAX_DIMS:
        raise SpecError("dims", f"given {len(given)} dimensions; allowed: at most {MAX_DIMS}")
    result: dict[object, int | str] = {}
    for letter, value in given.items():
        path = field_path(["dims", letter])
        dim = DimExpr.parse(value, path)
        if not dim.terms:
            raise SpecError(path, f"given {clip(value)}, which is 0; allowed: at least 1")
        result[letter] = dim.constant_value() if dim.is_constant else str(dim)
    return result


def no_file(given: object, allowed: str) -> object:
    """Return what is given, unless it names a histogram file: the loader of spec files reads those.

    Raises
    ------
    ValueError
        It is a text.
    """
    if isinstance(given, str):
        raise ValueError(
            f"given {clip(given)}; allowed: {allowed}; a histogram file only in a spec that is a file itself"
        )
    return given


def weights_by_value(given: object) -> object:
    """Return weights with integer keys; JSON writes them as text.

    Raises
    ------
    ValueError
        Not a mapping of at most 100000 positive integers, each once.
    """
    no_file(given, "a mapping of value: weight")
    if not isinstance(given, dict):
        return given
    if not given or len(given) > MAX_LISTED:
        raise ValueError(f"given {len(given)} weights; allowed: 1 to {MAX_LISTED}")
    result: dict[int, object] = {}
    for key, weight in given.items():
        if isinstance(key, str) and not _INTEGER.fullmatch(key):
            raise ValueError(f"given a weight for {clip(key)}; allowed: integers from 1")
        if int(key) in result:
            raise ValueError(f"given two weights for {clip(key)}; allowed: one for each value")
        result[int(key)] = weight
    return result


def check_spec(spec: Spec) -> None:
    """Check everything that involves more than one field.

    Raises
    ------
    SpecError
        With the path of the field to change.
    """
    _check_names(spec)
    _check_operands(spec)
    Contraction.from_spec(spec)
    _check_dims(spec)
    _check_weights(spec)
    _check_instances(spec)
    _check_sizes(spec)


def _check_names(spec: Spec) -> None:
    """Refuse names that a call could not use, or that mean two things."""
    if not 1 <= len(spec.shape_vars) <= MAX_VARIABLES:
        given = f"given {len(spec.shape_vars)} shape variables"
        raise SpecError("shape_vars", f"{given}; allowed: 1 to {MAX_VARIABLES}")
    named = [(f"op.epilogue.{i}", step.tensor) for i, step in enumerate(spec.op.epilogue) if step.tensor]
    taken: dict[str, str] = dict.fromkeys(RESERVED, "a reserved word")
    taken["bias"] = "reserved for the epilogue"
    for path, name in _user_names(spec):
        _check_identifier(path, name)
        if name in taken:
            raise SpecError(path, f"given the name {name!r}, {taken[name]}; allowed: another name")
        taken[name] = f"already used by {path}"
    del taken["bias"]
    for path, name in named:
        _check_identifier(path, name)
        if name in taken:
            raise SpecError(path, f"given the name {name!r}, {taken[name]}; allowed: another name, once")
        taken[name] = f"already used by {path}"


def _user_names(spec: Spec) -> Iterable[tuple[str, str]]:
    for name in spec.tensors:
        yield field_path(["tensors", name]), name
    yield "output.name", spec.output.name
    for name in spec.shape_vars:
        yield field_path(["shape_vars", name]), name


def _check_identifier(path: str, name: str) -> None:
    if not _IDENTIFIER.fullmatch(name) or len(name) > MAX_NAME_CHARS or keyword.iskeyword(name):
        allowed = f"a Python identifier of at most {MAX_NAME_CHARS} ASCII characters, no keyword"
        raise SpecError(path, f"given the name {clip(name)}; allowed: {allowed}")


def _check_operands(spec: Spec) -> None:
    inputs = spec.op.input_subscripts
    if len(spec.tensors) != len(inputs):
        raise SpecError(
            "tensors", f"given {len(spec.tensors)} tensors; allowed: the 2 operands of {spec.op.einsum}"
        )
    for (name, tensor), subscripts in zip(spec.tensors.items(), inputs, strict=True):
        if tensor.dims != subscripts:
            problem = (
                f"given {clip(tensor.dims)}; allowed: {subscripts}, as in {spec.op.einsum}, in its order"
            )
            raise SpecError(f"tensors.{name}.dims", problem)


def _check_dims(spec: Spec) -> None:
    letters = sorted(set("".join(spec.op.input_subscripts)))
    for letter in spec.dims:
        if letter not in letters:
            problem = f"not an index of {spec.op.einsum}; allowed: {', '.join(letters)}"
            raise SpecError(field_path(["dims", letter]), problem)
    for letter in letters:
        if letter not in spec.dims:
            raise SpecError(f"dims.{letter}", "missing; every index needs an extent, like 768 or 16*T")
    for letter, dim in spec.dims_parsed.items():
        for name in dim.variables:
            if name not in spec.shape_vars:
                allowed = ", ".join(spec.variables)
                problem = f"given {clip(str(dim))}; {name!r} is no shape variable; allowed: {allowed}"
                raise SpecError(f"dims.{letter}", problem + suggest(name, spec.variables))
        largest = dim.evaluate({name: variable.max for name, variable in spec.shape_vars.items()})
        if largest > MAX_EXTENT:
            raise SpecError(
                f"dims.{letter}", f"given {clip(str(dim))}, up to {largest}; allowed: up to 2**31"
            )
    used = {name for dim in spec.dims_parsed.values() for name in dim.variables}
    for name in spec.variables:
        if name not in used:
            raise SpecError(f"shape_vars.{name}", "is in no dimension of dims; use it there, or leave it out")


def _check_instances(spec: Spec) -> None:
    seen: set[tuple[int, ...]] = set()
    for number, instance in enumerate(spec.instances):
        path = f"instances.{number}"
        for name, value in instance.bindings.items():
            if name not in spec.shape_vars:
                allowed = ", ".join((*spec.variables, "weight"))
                hint = suggest(name, (*spec.variables, "weight"))
                raise SpecError(
                    field_path([*path.split("."), name]), f"unknown field; allowed: {allowed}{hint}"
                )
            if value not in spec.shape_vars[name]:
                problem = f"given {value}; allowed: {spec.shape_vars[name].allowed()}"
                raise SpecError(f"{path}.{name}", problem)
        for name in spec.variables:
            if name not in instance.bindings:
                raise SpecError(f"{path}.{name}", "missing; every shape variable is bound")
        binding = tuple(instance.bindings[name] for name in spec.variables)
        if binding in seen:
            raise SpecError(path, "the same binding is given twice; allowed: once, with the summed weight")
        seen.add(binding)
    if spec.instances:
        _check_instance_weights(spec)


def _check_weights(spec: Spec) -> None:
    for name, variable in spec.shape_vars.items():
        for value in variable.weights or ():
            if value not in variable:
                problem = f"given a weight for {value}; allowed: {variable.allowed()}"
                raise SpecError(f"shape_vars.{name}.weights", problem)


def _check_instance_weights(spec: Spec) -> None:
    if sum(instance.weight for instance in spec.instances) <= 0:
        raise SpecError("instances", "every weight is 0; allowed: at least one positive weight")
    for name, variable in spec.shape_vars.items():
        if variable.weights is not None:
            problem = "instances are given, with weights of their own; allowed: either of the two"
            raise SpecError(f"shape_vars.{name}.weights", problem)


def _check_sizes(spec: Spec) -> None:
    """Refuse tensors above 2**34 elements at the largest instance."""
    if spec.instances:
        bindings = {
            name: np.array([instance.bindings[name] for instance in spec.instances], dtype=np.int64)
            for name in spec.variables
        }
    else:
        bindings = {name: np.array([variable.max]) for name, variable in spec.shape_vars.items()}
    shapes = {field_path(["tensors", name]): letters for name, letters in spec.subscripts.items()}
    for path, letters in {**shapes, "output": spec.op.output_subscripts}.items():
        extents = [np.asarray(spec.dims_parsed[i].evaluate(bindings), dtype=np.float64) for i in letters]
        largest = float(np.max(math.prod(extents, start=np.ones(1))))
        if largest > MAX_ELEMENTS:
            problem = f"{largest:.4g} elements at the largest instance; allowed: at most 2**34"
            raise SpecError(path, problem)
