"""The description of an executable, read and checked: ``model.json`` of a bundle.

    {"format", "name",
     "dimensions": {name: {"min", "max"}},
     "inputs", "weights", "values": {name: {"dtype", "shape"}},   extents: numbers or texts
     "load": [step], "steps": [step],                                 load: once, on weights alone
     "outputs": [value], "signature": …,
     "storages": {"sizes": [[bytes, …], …], "of": {value: storage}, "max_bytes"}}

A step is ``{"kernel": digest, "arguments": {tensor: read}, "results": [read], "variables"}``, where a read is
``{"value", "shape"}``; or ``{"host": operator, "operands", "attributes", "results", "view"}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dietcode.errors import LibraryError
from dietcode.graph.extent import Extent, parse_extent
from dietcode.graph.operators import GRAPH_OPERATORS
from dietcode.graph.tensor_type import DTYPES, TensorType

FORMAT = "dietcode-model/1"
ALIGNMENT = 64  # of storages, in bytes
VIEW_OPERATORS = ("reshape", "transpose", "expand", "slice")


@dataclass(frozen=True)
class TensorRead:
    """A value in a shape, as a kernel takes or gives it."""

    value: str
    shape: tuple[Extent, ...]


@dataclass(frozen=True)
class KernelStep:
    """A call of a library.

    Attributes
    ----------
    digest : str
        Of the library.
    arguments : dict of str to TensorRead
        By the name of the library's tensor.
    results : tuple of TensorRead
    variables : dict of str to Extent
        Values of the library's shape variables.
    """

    digest: str
    arguments: dict[str, TensorRead]
    results: tuple[TensorRead, ...]
    variables: dict[str, Extent]
    repeat: Repeat | None = None


@dataclass(frozen=True)
class Repeat:
    """A kernel called for each position along the first axis of some of its arguments and of its results.

    Attributes
    ----------
    count : Extent
        How often.
    reverse : bool
        Whether the last position comes first.
    each : tuple of str
        The arguments that have a position for each call.
    carried : dict of str to int
        The arguments that are a result of the call before, by its number; the first takes what they name.
    """

    count: Extent
    reverse: bool
    each: tuple[str, ...]
    carried: dict[str, int]


@dataclass(frozen=True)
class HostStep:
    """An operator that NumPy computes, or a view.

    Attributes
    ----------
    operands : tuple of str, number or None
    attributes : dict of str to object
        Extents among them are evaluated for each shape.
    is_view : bool
        Whether the result shares its operand's memory.
    """

    operator: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    results: tuple[str, ...]
    is_view: bool


@dataclass(frozen=True)
class Executable:
    """A model as the runtime takes it."""

    name: str
    ranges: dict[str, tuple[int, int]]
    inputs: dict[str, TensorType]
    weights: dict[str, TensorType]
    values: dict[str, TensorType]
    load: tuple[HostStep, ...]
    steps: tuple[KernelStep | HostStep, ...]
    outputs: tuple[str, ...]
    signature: Mapping[str, Any]
    storage_sizes: tuple[tuple[Extent, ...], ...]
    storage_of: dict[str, int]

    @property
    def digests(self) -> list[str]:
        """The libraries that it calls, each once."""
        return list(dict.fromkeys(step.digest for step in self.steps if isinstance(step, KernelStep)))

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value: an input, a weight, or what a step computes."""
        return next(group[name] for group in (self.values, self.inputs, self.weights) if name in group)

    @property
    def used_dimensions(self) -> frozenset[str]:
        """The dimensions that some value's shape follows from."""
        types = (*self.inputs.values(), *self.values.values())
        return frozenset(name for type_ in types for extent in type_.shape for name in extent.variables)


def read_executable(data: Mapping[str, Any]) -> Executable:
    """Return an executable.

    Raises
    ------
    LibraryError
        The data are of another format, or describe none.
    """
    if data.get("format") != FORMAT:
        raise LibraryError(
            f"model.json: format {str(data.get('format'))[:40]!r}; this version reads {FORMAT}"
        )
    try:
        return _read(data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LibraryError(f"model.json: describes no model: {' '.join(what.split())[:120]}") from error


def _read(data: Mapping[str, Any]) -> Executable:
    executable = Executable(
        str(data["name"]),
        {str(n): (int(r["min"]), int(r["max"])) for n, r in data["dimensions"].items()},
        _types(data["inputs"]),
        _types(data["weights"]),
        _types(data["values"]),
        tuple(_host_step(step) for step in data["load"]),
        tuple(_kernel_step(step) if "kernel" in step else _host_step(step) for step in data["steps"]),
        tuple(map(str, data["outputs"])),
        data["signature"],
        tuple(tuple(map(parse_extent, sizes)) for sizes in data["storages"]["sizes"]),
        {str(name): int(number) for name, number in data["storages"]["of"].items()},
    )
    _check(executable)
    return executable


def _check(executable: Executable) -> None:
    """Refuse steps that read what is not there yet, and what no call could use."""
    known = set(executable.weights)
    for step in executable.load:
        _check_step(executable, step, known)
    known.update(executable.inputs)
    for later in executable.steps:
        _check_step(executable, later, known)
    for name in executable.outputs:
        if name not in known:
            raise ValueError(f"output {name[:40]!r} is computed by no step")
    for name, number in executable.storage_of.items():
        _ = executable.values[name]
        if not 0 <= number < len(executable.storage_sizes):
            raise ValueError(f"{name[:40]!r} lies in storage {number} of {len(executable.storage_sizes)}")
    for name, (low, high) in executable.ranges.items():
        if not 0 <= low <= high:
            raise ValueError(f"dimension {name[:40]!r} from {low} to {high}")
    leaves = [*executable.signature["positional"], *executable.signature["keyword"].values()]
    if sorted(_leaves(leaves)) != sorted(executable.inputs):
        raise ValueError("the signature does not give each input once")
    if len(_leaves([executable.signature["output"]])) != len(executable.outputs):
        raise ValueError("the signature does not give each output once")
    extents = [extent for sizes in executable.storage_sizes for extent in sizes]
    types = (executable.inputs, executable.weights, executable.values)
    extents += [extent for group in types for type_ in group.values() for extent in type_.shape]
    for extent in extents:
        if extent.variables - set(executable.ranges):
            raise ValueError(f"extent {str(extent)[:40]!r} follows from no dimension of the model")


def _check_step(executable: Executable, step: KernelStep | HostStep, known: set[str]) -> None:
    if isinstance(step, KernelStep):
        reads = [one.value for one in step.arguments.values()]
        writes = [one.value for one in step.results]
    else:
        reads, writes = [one for one in step.operands if isinstance(one, str)], list(step.results)
        if step.is_view and (len(reads), len(writes)) != (1, 1):
            raise ValueError(f"{step.operator} as a view of {len(reads)} values")
        if step.is_view and step.operator not in VIEW_OPERATORS:
            raise ValueError(f"{step.operator} as a view; allowed: {', '.join(VIEW_OPERATORS)}")
    missing = [name for name in reads if name not in known]
    if missing:
        raise ValueError(f"a step reads {missing[0][:40]!r} before it is computed")
    for name in writes:
        if name in known or name not in executable.values:
            raise ValueError(f"a step writes {name[:40]!r}, which is no value that is yet to be computed")
    known.update(writes)


def _leaves(trees: Iterable[Any]) -> list[str]:
    """Return the leaves of trees of `dietcode.graph.signature`."""
    found: list[str] = []
    for tree in trees:
        if isinstance(tree, str):
            found.append(tree)
        elif tree is not None:
            ((kind, inner),) = tree.items()
            found += _leaves([one for _, one in inner] if kind == "dict" else inner)
    return found


@lru_cache(maxsize=4096)
def _one_of_equals(shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """Return the same tuple for equal shapes: what is known of one is found by its identity."""
    return shape


def _shape(data: Iterable[Any]) -> tuple[Extent, ...]:
    return _one_of_equals(tuple(map(parse_extent, data)))


def _types(data: Mapping[str, Any]) -> dict[str, TensorType]:
    found = {}
    for name, facts in data.items():
        if facts["dtype"] not in DTYPES:
            raise ValueError(f"dtype {str(facts['dtype'])[:20]!r}")
        found[str(name)] = TensorType(str(facts["dtype"]), _shape(facts["shape"]))
    return found


def _kernel_step(step: Mapping[str, Any]) -> KernelStep:
    def read(one: Mapping[str, Any]) -> TensorRead:
        return TensorRead(str(one["value"]), _shape(one["shape"]))

    return KernelStep(
        str(step["kernel"]),
        {str(name): read(one) for name, one in step["arguments"].items()},
        tuple(read(one) for one in step["results"]),
        {str(name): parse_extent(extent) for name, extent in step["variables"].items()},
        None if step.get("repeat") is None else _repeat(step["repeat"]),
    )


def _repeat(data: Mapping[str, Any]) -> Repeat:
    return Repeat(
        parse_extent(data["count"]),
        bool(data["reverse"]),
        tuple(map(str, data["each"])),
        {str(name): int(number) for name, number in data["carried"].items()},
    )


_OWN_OPERATORS = {"copy": {}, "positions": {"rows": parse_extent}}


def _host_step(step: Mapping[str, Any]) -> HostStep:
    operator = str(step["host"])
    if operator in _OWN_OPERATORS:
        attributes = {key: read(step["attributes"][key]) for key, read in _OWN_OPERATORS[operator].items()}
    else:
        known = GRAPH_OPERATORS[operator].attributes
        attributes = {}
        for key, given in step["attributes"].items():
            attributes[key] = given if given == known[key].default else known[key].read(given)
    operands = tuple(one["value"] if isinstance(one, Mapping) else _number(one) for one in step["operands"])
    results = tuple(map(str, step["results"]))
    return HostStep(operator, operands, attributes, results, bool(step.get("view")))


def _number(one: Any) -> Any:
    return float(one) if isinstance(one, str) else one


def evaluated(value: Any, binding: Mapping[str, int]) -> Any:
    """Return an attribute with its extents as numbers."""
    if isinstance(value, Extent):
        return value.evaluate(binding)
    if isinstance(value, tuple | list):
        return tuple(evaluated(one, binding) for one in value)
    return value
