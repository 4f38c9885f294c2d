"""The description of an executable, read and checked: ``model.json`` of a bundle.

    {"format", "name",
     "dimensions": {name: {"min", "max"}},
     "sizes": {name: extent},                  dimensions that a step sets, and what they are at most
     "inputs", "weights", "values": {name: {"dtype", "shape"}},   extents: numbers or texts
     "load": [step], "steps": [step],                                 load: once, on weights alone
     "outputs": [value], "signature": …,
     "storages": {"sizes": [[bytes, …], …], "of": {value: storage}, "max_bytes"}}

A step is ``{"kernel": digest, "arguments": {tensor: read}, "results": [read], "variables"}``, where a read is
``{"value", "shape"}``; or ``{"host": operator, "operands", "attributes", "results", "view", "placed"}``;
or one of `dietcode.runtime.models.flow`, with steps within it:

    {"branch": value, "then": [step], "else": [step], "results"}
    {"loop": {"condition": {"steps", "value"} or null, "count": extent or null, "body": [step],
              "carried": [{"first", "state", "next"}],               values before, in and after a round
              "each": [{"of", "as"}], "stacked": [{"value", "result"}]}, "results"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from dietcode.errors import LibraryError
from dietcode.graph.attributes import REQUIRED, GraphAttribute, read_flag
from dietcode.graph.extent import Extent, Ranges, parse_extent, simplified
from dietcode.graph.limits import check_size
from dietcode.graph.operators import GRAPH_OPERATORS
from dietcode.graph.signature import check_halves
from dietcode.graph.tensor_type import DTYPES, TensorType
from dietcode.runtime.models.flow import BranchStep, LoopStep, all_steps, read_flow
from dietcode.workload.text import one_line

FORMAT = "dietcode-model/1"
T = TypeVar("T")
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
    is_product : bool
        Whether one element of zeros along an axis without elements gives the same.
    """

    digest: str
    arguments: dict[str, TensorRead]
    results: tuple[TensorRead, ...]
    variables: dict[str, Extent]
    repeat: Repeat | None = None
    is_product: bool = False


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
    source : str
        Where the model's author wrote it; may be empty.
    placed : tuple of str
        Of a concatenation whose operands lie in the result: the values whose memory that is. It does nothing.
    """

    operator: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    results: tuple[str, ...]
    is_view: bool
    source: str = ""
    placed: tuple[str, ...] = ()


Step: TypeAlias = KernelStep | HostStep | BranchStep | LoopStep


@dataclass(frozen=True)
class Executable:
    """A model as the runtime takes it."""

    name: str
    ranges: dict[str, tuple[int, int]]
    inputs: dict[str, TensorType]
    weights: dict[str, TensorType]
    values: dict[str, TensorType]
    load: tuple[HostStep, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    signature: Mapping[str, Any]
    storage_sizes: tuple[tuple[Extent, ...], ...]
    storage_of: dict[str, int]
    sizes: dict[str, Extent]

    @cached_property
    def all_steps(self) -> tuple[Step, ...]:
        """Its steps and those within them, but not those of the load."""
        return tuple(all_steps(self.steps))

    @property
    def digests(self) -> list[str]:
        """The libraries that it calls, each once."""
        return list(dict.fromkeys(step.digest for step in self.all_steps if isinstance(step, KernelStep)))

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value: an input, a weight, or what a step computes."""
        return next(group[name] for group in (self.values, self.inputs, self.weights) if name in group)

    @property
    def used_dimensions(self) -> frozenset[str]:
        """The dimensions of inputs that some value's shape follows from."""
        types = (*self.inputs.values(), *self.values.values())
        found = {name for type_ in types for extent in type_.shape for name in extent.variables}
        found.update(name for most in self.sizes.values() for name in most.variables)
        return frozenset(found - set(self.sizes))


def read_executable(data: Mapping[str, Any]) -> Executable:
    """Return an executable.

    Raises
    ------
    LibraryError
        The data are of another format, or describe none.
    """
    return read_described(data, "model", FORMAT, _read)


def read_described(
    data: Mapping[str, Any], what: str, form: str, read: Callable[[Mapping[str, Any]], T]
) -> T:
    """Return what a bundle's file describes.

    Parameters
    ----------
    data : mapping
    what : str
        ``model`` of ``model.json``, and so on.
    form : str
        The only format that is read.
    read : callable
        Raises ValueError, or what misshapen data raise, for what is none.

    Raises
    ------
    LibraryError
        The data are of another format, or describe none.
    """
    if data.get("format") != form:
        given = str(data.get("format"))[:40]
        raise LibraryError(f"{what}.json: format {given!r}; this version reads {form}")
    try:
        return read(data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        wrong = one_line(f"{type(error).__name__}: {error}", 160)
        raise LibraryError(f"{what}.json: describes no {what}: {wrong}") from error


def _read(data: Mapping[str, Any]) -> Executable:
    executable = Executable(
        str(data["name"]),
        {str(n): (int(r["min"]), int(r["max"])) for n, r in data["dimensions"].items()},
        read_types(data["inputs"]),
        read_types(data["weights"]),
        read_types(data["values"]),
        read_load(data["load"]),
        _read_steps(data["steps"]),
        tuple(map(str, data["outputs"])),
        data["signature"],
        tuple(tuple(map(parse_extent, sizes)) for sizes in data["storages"]["sizes"]),
        {str(name): int(number) for name, number in data["storages"]["of"].items()},
        {str(name): parse_extent(most) for name, most in data.get("sizes", {}).items()},
    )
    _check(executable)
    return executable


def read_load(data: Iterable[Any]) -> tuple[HostStep, ...]:
    """Return the steps of a load; raises ValueError, KeyError or TypeError for what is none."""
    return tuple(_host_step(step) for step in data)


def read_kernel_steps(data: Iterable[Any]) -> tuple[KernelStep, ...]:
    """Return calls of kernels; raises ValueError, KeyError or TypeError for what is none."""
    return tuple(_kernel_step(step) for step in data)


def _read_steps(data: Iterable[Any]) -> tuple[Step, ...]:
    return tuple(_read_step(step) for step in data)


def _read_step(data: Mapping[str, Any]) -> Step:
    if "branch" in data or "loop" in data:
        return read_flow(data, _read_steps)
    return _kernel_step(data) if "kernel" in data else _host_step(data)


def _check(executable: Executable) -> None:
    """Refuse steps that read what is not there yet, and what no call could use."""
    extents = [extent for sizes in executable.storage_sizes for extent in sizes]
    types = (executable.inputs, executable.weights, executable.values)
    extents += executable.sizes.values()
    extents += [extent for group in types for type_ in group.values() for extent in type_.shape]
    for extent in extents:
        if extent.variables - set(executable.ranges):
            raise ValueError(f"extent {str(extent)[:40]!r} follows from no dimension of the model")
    known = set(executable.weights)
    for step in executable.load:
        _check_step(executable, step, known, known)
    known.update(executable.inputs)
    written = set(known)
    for later in executable.steps:
        _check_step(executable, later, known, written)
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
    outputs = [executable.type_of(name) for name in executable.outputs]
    check_halves(executable.signature, executable.inputs, outputs)


def _check_step(executable: Executable, step: Step, known: set[str], written: set[str]) -> None:
    """Refuse a step that reads what is not known, or writes what it may not.

    Parameters
    ----------
    executable : Executable
    step : step
    known : set of str
        The values that it may read; its results join them.
    written : set of str
        All values that some step has written, those within other steps too.
    """
    if isinstance(step, KernelStep):
        reads = [one.value for one in step.arguments.values()]
        writes = [one.value for one in step.results]
    elif isinstance(step, HostStep):
        reads, writes = [one for one in step.operands if isinstance(one, str)], list(step.results)
        if step.is_view and (len(reads), len(writes)) != (1, 1):
            raise ValueError(f"{step.operator} as a view of {len(reads)} values")
        if step.is_view and step.operator not in VIEW_OPERATORS:
            raise ValueError(f"{step.operator} as a view; allowed: {', '.join(VIEW_OPERATORS)}")
        if step.placed:
            _check_placed(executable, step, written)
    else:
        _check_flow(executable, step, known, written)
        return
    _check_known(reads, known)
    if executable.sizes:
        _check_sizes(executable, step, known)
    _write(executable, writes, known, written)
    if isinstance(step, HostStep):
        check_host_types(step, executable.type_of, executable.ranges)


def check_host_types(
    step: HostStep, type_of: Callable[[str], TensorType], ranges: Ranges = MappingProxyType({})
) -> None:
    """Refuse a step whose results are others than those of its operator, or are too large.

    So that nothing is computed before it is known how much it is.

    Parameters
    ----------
    step : HostStep
    type_of : callable
        Returns the type of a value.
    ranges : mapping of str to (int, int)
        Of the dimensions.

    Raises
    ------
    ValueError
        What is wrong.
    """
    types = [type_of(one) if isinstance(one, str) else one for one in step.operands]
    if step.operator in _OWN_OPERATORS:
        dtype = "int32" if step.operator == "positions" else types[0].dtype
        inferred: Sequence[TensorType] = [TensorType(dtype, types[0].shape)]
    else:
        known = GRAPH_OPERATORS[step.operator]
        if not known.least <= len(types) <= known.most:
            raise ValueError(f"{step.operator} of {len(types)}; allowed: {known.least} to {known.most}")
        inferred = known.infer(types, step.attributes)
    if len(inferred) != len(step.results):
        raise ValueError(f"{step.operator} with {len(step.results)} results; allowed: {len(inferred)}")
    for name, own in zip(step.results, inferred, strict=True):
        check_size(own, ranges, is_made=not any(isinstance(one, str) for one in step.operands))
        wanted = type_of(name)
        shapes = [tuple(simplified(one, ranges) for one in type_.shape) for type_ in (own, wanted)]
        if own.dtype != wanted.dtype or shapes[0] != shapes[1]:
            raise ValueError(f"{step.operator} gives {own} as {name[:40]!r}, which is {wanted}")


def _check_placed(executable: Executable, step: HostStep, written: set[str]) -> None:
    """Refuse parts of a concatenation that no step has written, or that have memory of their own."""
    given = {name for one in executable.load for name in one.results}
    given.update(executable.inputs, executable.weights, executable.storage_of)
    parts = set(step.placed)
    if not parts <= written - given or step.operator != "concat" or len(parts) != len(step.operands):
        raise ValueError(f"{step.operator} of {len(step.operands)} with the parts {list(step.placed)[:4]}")


def _check_sizes(executable: Executable, step: KernelStep | HostStep, known: set[str]) -> None:
    """Refuse a step whose extents follow from a size that no step before has told."""
    types = [executable.values[name] for name in _written_by(step) if name in executable.values]
    extents = [extent for type_ in types for extent in type_.shape]
    if isinstance(step, KernelStep):
        reads = (*step.arguments.values(), *step.results)
        extents += [*step.variables.values(), *(extent for one in reads for extent in one.shape)]
    else:
        if "size" in step.attributes:
            known.update(f"size {name}" for name in step.attributes["size"].variables)
        given = [one if isinstance(one, tuple) else (one,) for one in step.attributes.values()]
        extents += [one for ones in given for one in ones if isinstance(one, Extent)]
    used = {name for extent in extents for name in extent.variables}
    _check_known(sorted(f"size {name}" for name in used & set(executable.sizes)), known)


def _check_known(reads: Iterable[str], known: set[str]) -> None:
    missing = [name for name in reads if name not in known]
    if missing:
        raise ValueError(f"a step reads {missing[0][:40]!r} before it is computed")


def _write(executable: Executable, writes: Iterable[str], known: set[str], written: set[str]) -> None:
    for name in writes:
        if name in known or name in written or name not in executable.values:
            raise ValueError(f"a step writes {name[:40]!r}, which is no value that is yet to be computed")
        known.add(name)
        written.add(name)


def _check_flow(
    executable: Executable, step: BranchStep | LoopStep, known: set[str], written: set[str]
) -> None:
    """Refuse a step with others within it as `_check_step` does; what these write is not known outside."""
    if isinstance(step, BranchStep):
        _check_known([step.predicate], known)
        _check_truth(executable, step.predicate)
        for side in (step.then, step.otherwise):
            inside = set(known)
            written -= set(step.results)  # each side writes them
            for inner in side:
                _check_step(executable, inner, inside, written)
            _check_known(step.results, inside)
        known.update(step.results)
        return
    _check_known([*(one.first for one in step.carried), *(of for of, _ in step.each)], known)
    inside = set(known)
    _write(
        executable, [*(one.state for one in step.carried), *(name for _, name in step.each)], inside, written
    )
    of_condition = set(inside)
    for inner in step.condition:
        _check_step(executable, inner, of_condition, written)
    if step.predicate:
        _check_known([step.predicate], of_condition)
        _check_truth(executable, step.predicate)
    for inner in step.body:
        _check_step(executable, inner, inside, written)
    _check_known([*(one.next for one in step.carried), *(name for name, _ in step.stacked)], inside)
    bare = [name for name in step.states if name not in executable.storage_of]
    if bare:
        raise ValueError(f"the state {bare[0][:40]!r} has no storage")
    own = [name for inner in step.body for name in _written_by(inner)]
    made = [*(one.next for one in step.carried), *(name for name, _ in step.stacked)]
    if len(set(made)) != len(made) or not set(made) <= set(own):
        raise ValueError("a loop whose states and stacks are not written each by a step of its own")
    _write(executable, step.results, known, written)


def _check_truth(executable: Executable, name: str) -> None:
    type_ = executable.values.get(name) or executable.inputs.get(name) or executable.weights[name]
    if type_.dtype != "bool" or type_.rank:
        raise ValueError(f"{name[:40]!r} is {type_}; allowed: bool[]")


def _written_by(step: Step) -> list[str]:
    """Return the values that a step writes into memory of their own."""
    if isinstance(step, KernelStep):
        return [one.value for one in step.results]
    return [] if isinstance(step, HostStep) and step.is_view else list(step.results)


def _leaves(trees: Iterable[Any]) -> list[str]:
    """Return the leaves of trees of `dietcode.graph.signature`."""
    found: list[str] = []
    for tree in trees:
        if isinstance(tree, str):
            found.append(tree)
        elif tree is not None:
            ((kind, inner),) = tree.items()
            if kind == "constant":
                continue
            found += _leaves([one for _, one in inner] if kind == "dict" else inner)
    return found


@lru_cache(maxsize=4096)
def _one_of_equals(shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """Return the same tuple for equal shapes: what is known of one is found by its identity."""
    return shape


def _shape(data: Iterable[Any]) -> tuple[Extent, ...]:
    return _one_of_equals(tuple(map(parse_extent, data)))


def read_types(data: Mapping[str, Any]) -> dict[str, TensorType]:
    """Return types from what a description says of values; raises ValueError, KeyError or TypeError."""
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
        bool(step.get("is_product")),
    )


def _repeat(data: Mapping[str, Any]) -> Repeat:
    return Repeat(
        parse_extent(data["count"]),
        bool(data["reverse"]),
        tuple(map(str, data["each"])),
        {str(name): int(number) for name, number in data["carried"].items()},
    )


_OWN_OPERATORS: dict[str, dict[str, GraphAttribute]] = {
    "copy": {},
    "positions": {"rows": GraphAttribute(parse_extent, REQUIRED), "wraps": GraphAttribute(read_flag, True)},
}


def _host_step(step: Mapping[str, Any]) -> HostStep:
    operator = str(step["host"])
    own = _OWN_OPERATORS.get(operator)
    known = GRAPH_OPERATORS[operator].attributes if own is None else own
    attributes = {key: one.default for key, one in known.items()}
    for key, given in step["attributes"].items():
        attributes[key] = given if given == known[key].default else known[key].read(given)
    missing = [key for key, one in attributes.items() if one is REQUIRED]
    if missing:
        raise ValueError(f"{operator} without {missing[0]}")
    operands = tuple(one["value"] if isinstance(one, Mapping) else _number(one) for one in step["operands"])
    results = tuple(map(str, step["results"]))
    source, placed = str(step.get("source", "")), tuple(map(str, step.get("placed", ())))
    return HostStep(operator, operands, attributes, results, bool(step.get("view")), source, placed)


def _number(one: Any) -> Any:
    return float(one) if isinstance(one, str) else one


def evaluated(value: Any, binding: Mapping[str, int]) -> Any:
    """Return an attribute with its extents as numbers."""
    if isinstance(value, Extent):
        return value.evaluate(binding)
    if isinstance(value, tuple | list):
        return tuple(evaluated(one, binding) for one in value)
    return value
