"""A tuned library, as `dietcode.runtime.loading` loads it: ``lib.pack``, ``lib(...)``, ``lib.select``."""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dietcode.errors import LibraryError, ShapeError, TensorError
from dietcode.runtime.compiled import CalledInC, CompiledShapes, compile_call, digits, key_of
from dietcode.runtime.lean_call import Bound, LeanCall, NotLeanError
from dietcode.runtime.manifest import DISPATCH, packing_function, read_json
from dietcode.runtime.outputs import settle
from dietcode.runtime.reopened import Reopened
from dietcode.runtime.tensors import (
    DTYPES,
    Packed,
    accept,
    detached,
    note_written,
    overlapping,
    packed_empty,
    span,
    stored,
)
from dietcode.workload.binding import BindingPlan
from dietcode.workload.quotient import parse_dim
from dietcode.workload.text import clip, counted, one_line

_MAX_CACHED_SHAPES = 4096
REFUSALS = (RuntimeError, TypeError, ValueError)  # of the code, in words of TVM
Known = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]  # values of the variables, shapes of the outputs


class Library(CalledInC, Reopened):
    """One tuned operator for a range of shapes.

    Calls are thread-safe. Any alignment is accepted. An input whose rows lie apart, as a slice of wider ones,
    is copied together first; other tensors are never copied, and have to be contiguous.

    Parameters
    ----------
    module : mapping of str to callable
        The code's functions.
    run_beside_torch : callable, optional
        ``run`` for calls with PyTorch's tensors, where that is another one.
    num_threads : int, optional
        The most threads that a call uses, as `module`'s functions are bound; None on GPUs.

    Attributes
    ----------
    device_type : str
        PyTorch's name of the device that tensors are on.
    """

    device_type: ClassVar[str] = "cpu"

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, Any],
        module: Any,
        run_beside_torch: Any = None,
        num_threads: int | None = None,
    ) -> None:
        self.folder = folder
        self.num_threads = num_threads
        self.manifest = manifest
        self._run, self._select = module["run"], module["select"]
        self._run_beside_torch = run_beside_torch or self._run
        self._inputs: dict[str, dict[str, Any]] = manifest["inputs"]
        self._order: list[str] = manifest["argument_order"]
        self._output: dict[str, Any] = manifest["output"]
        self._outputs: list[dict[str, Any]] = manifest.get("outputs", [self._output])
        self._written = {facts["into"] for facts in self._outputs if "into" in facts}
        self._packed: dict[str, dict[str, Any]] = manifest["packed"]
        self._packs = self._packing(module)
        # In the order of the code's trailing arguments, which the sorted keys of JSON do not keep.
        self._variables: dict[str, dict[str, Any]] = {
            name: manifest["variables"][name] for name in manifest["variable_order"]
        }
        self._plan = BindingPlan.from_json(manifest["binding"])
        self._allowed = frozenset({*self._order, *self._plan.keywords, "out"})
        # What every call asks of each argument: name, dtype, whether it comes packed.
        self._arguments = [(name, self._inputs[name]["dtype"], name in self._packed) for name in self._order]
        self._dims = {k: parse_dim(v, f"dims.{k}") for k, v in manifest["dims"].items()}
        # Indices that no shape shows, of a split axis, are constants.
        self._fixed = {k: dim.constant_value() for k, dim in self._dims.items() if dim.is_constant}
        self._shapes: OrderedDict[Any, Known] = OrderedDict()
        self._compiled_shapes: CompiledShapes = {}
        self._check_described()
        self._prepare_calls()
        self.__doc__ = self._help()

    def _help(self) -> str:
        """Return what `help` shows of this library: how it is called."""
        facts = self._inputs | {facts["name"]: facts for facts in self._outputs}
        names = [*self._order, *(facts["name"] for facts in self._outputs)]
        lines = [f"{name}: {_dims_text(facts[name], self.manifest['dims'])}" for name in dict.fromkeys(names)]
        lines += [f"{name} in {_range_text(range_of)}" for name, range_of in self._variables.items()]
        packed = ", ".join(f"{name}=lib.pack({name}=…)" for name in self._order if name in self._packed)
        hint = f"\n\nOnce, ahead of all calls: {packed}" if packed else ""
        signature = str(getattr(self, "__signature__", "(…)"))
        returned = ", ".join(facts["name"] for facts in self._outputs)
        return (
            f"lib{signature} -> {returned}\n\n" + "\n".join(lines) + hint + "\n\n"
            "Also pack, select, bind, torch_op, report, dispatch: help(type(lib))."
        )

    def _prepare_calls(self) -> None:
        runs = self._run, self._run_beside_torch
        layouts = {name: facts["layout"] for name, facts in self._packed.items()}
        packed = [(name, layouts[name]) if name in layouts else None for name in self._order]
        described = [(name, self._inputs[name]) for name in self._order]
        described += [("out", facts) for facts in self._outputs]
        dtypes = [facts["dtype"] for _, facts in described]
        # Of each output, which tensor it is written to; -1 for one of its own.
        into = tuple(self._order.index(f["into"]) if "into" in f else -1 for f in self._outputs)
        self.lean: Callable[..., Any] = LeanCall(runs, packed, dtypes, self._shapes, into)
        tensors = [(name, len(facts["dims"]), facts["dtype"]) for name, facts in described]
        variables = (self._plan.keywords, len(self._variables))
        self.compiled = compile_call(runs, tensors, into, layouts, variables, self._compiled_shapes)

    def _check_described(self) -> None:
        """Look up what calls will need, so that a manifest without it fails when it is loaded."""
        for facts in (*self._outputs, *(self._inputs[name] for name in self._order)):
            _ = DTYPES[facts["dtype"]], [self._dims[index] for index in facts["dims"]]
        self._check_packed()
        for facts in self._variables.values():
            _ = facts["min"] <= facts["max"]
            if not isinstance(facts.get("values"), list | None):
                raise TypeError(f"the values of a variable are {clip(facts['values'])}")
        known = set(self._plan.keywords)
        for step in self._plan.steps:
            axes = len(self._inputs[step.tensor]["dims"]) if step.tensor in self._order else 0
            if not 0 <= step.axis < axes:
                raise IndexError(f"axis {step.axis} of {clip(step.tensor)}")
            known.add(step.variable)
        if known != set(self._variables):
            raise KeyError(clip(sorted(known ^ set(self._variables))))

    def _packing(self, module: Any) -> dict[str, Any]:
        """Return the function of the code that packs each constant."""
        return {name: module[packing_function(facts)] for name, facts in self._packed.items()}

    def _check_packed(self) -> None:
        for name, facts in self._packed.items():
            _ = (
                facts["layout"],
                _packed_shape(facts, self._fixed | dict.fromkeys(self._inputs[name]["dims"], 1)),
            )

    def packed_tensor(self, name: str, shape: Sequence[int], data: Any) -> Packed:
        """Return memory that holds a constant in this library's layout as `pack` does.

        Parameters
        ----------
        shape : sequence of int
            Of the constant, before it was packed.
        data : torch.Tensor
            On a CPU.
        """
        return Packed(name, tuple(shape), self._packed[name]["layout"], data.numpy())

    def __repr__(self) -> str:
        ranges = ", ".join(f"{n} in {_range_text(v)}" for n, v in self._variables.items())
        threads = "" if self.num_threads is None else "; " + counted(self.num_threads, "thread")
        return f"<dietcode.Library {self.manifest['name']}: {ranges}{threads}>"

    @property
    def argument_names(self) -> tuple[list[str], list[str]]:
        """The tensors and the shape variables, in the order of `native`'s arguments."""
        return list(self._order), list(self._variables)

    @property
    def packed_names(self) -> frozenset[str]:
        """The constant tensors that `pack` has to put into a layout of the library's own."""
        return frozenset(self._packed)

    def native(self, beside_torch: bool = False) -> Callable[..., Any]:
        """Return the code's function: tensors, outputs, values of the shape variables.

        It checks dtypes and extents, and nothing else: the caller sees to ranges and overlaps.

        Parameters
        ----------
        beside_torch : bool
            For calls between PyTorch's own, see `dietcode.load`.
        """
        run: Callable[..., Any] = self._run_beside_torch if beside_torch else self._run
        return run

    @property
    def dispatch(self) -> dict[str, Any]:
        """The dispatch table, readable."""
        return read_json(self.folder / DISPATCH)

    def pack(self, **constants: Any) -> Packed:
        """Pack one constant tensor into the library's layout; do it once, ahead of time.

        Raises
        ------
        TensorError
            It is no constant of this library, or has the wrong dtype or layout.
        ShapeError
            Its shape does not fit.
        """
        allowed = ", ".join(self._packed) or "none: this library has no constant tensors"
        if len(constants) != 1 or next(iter(constants)) not in self._packed:
            raise TensorError(f"pack: given {', '.join(constants) or 'nothing'}; allowed: one of {allowed}")
        ((name, value),) = constants.items()
        tensor, shape = accept(name, detached(value), self._inputs[name]["dtype"])
        indices, facts = self._inputs[name]["dims"], self._packed[name]
        if len(shape) != len(indices):
            raise ShapeError(f"{name}: shape {list(shape)}; allowed: {len(indices)} dimensions ({indices})")
        self._check_fixed(name, indices, shape)
        extents = self._fixed | dict(zip(indices, shape, strict=True))
        packed_shape = _packed_shape(facts, extents)
        if math.prod(packed_shape) > max(1, math.prod(shape)) * facts["lanes"]:
            raise refused_by_code(self.folder, f"{name}: {list(shape)} packed as {list(packed_shape)}")
        data = packed_empty(packed_shape)
        try:
            self._packs[name](tensor, data)
        except REFUSALS as error:
            raise refused_by_code(self.folder, error) from error
        return Packed(name, shape, facts["layout"], data)

    def bind(self, **bound: Any) -> Bound:
        """Bind tensors that are the same in all calls, for the lean call in loops: ``f(X, out=Y)``.

        Parameters
        ----------
        **bound : tensor or Packed
            Every constant, as it is or as `pack` returned it, and others, by name.

        Raises
        ------
        TensorError
            A constant is not given, a tensor is unknown, or it has the wrong dtype or layout.
        ShapeError
            The shape of a constant does not fit.
        """
        return Bound(self, bound)

    def torch_op(self, **bound: Any) -> Any:
        """Return an operator of PyTorch, a `dietcode.runtime.torch_operator.TorchOp`.

        Parameters
        ----------
        **bound : tensor or Packed
            As for `bind`.

        Raises
        ------
        TensorError, ShapeError
            As `bind`.
        ImportError
            PyTorch is not installed.
        """
        from dietcode.runtime.torch_operator import TorchOp

        return TorchOp(self, bound)

    def torch_op_name(self) -> str:
        """Enter the operator into PyTorch's dispatcher, as `torch_op` does too, and return its name.

        A process that runs what `torch.export.save` wrote calls this first.
        """
        from dietcode.runtime.registered_operator import operator_of

        return operator_of(self).name

    def check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Check whether a tensor of this shape may belong to a call, whatever the others are.

        Raises
        ------
        ShapeError
            It may not.
        """
        indices = self._inputs[name]["dims"]
        if len(shape) != len(indices):
            raise ShapeError(f"{name}: shape {list(shape)}; allowed: {len(indices)} dimensions ({indices})")
        self._check_fixed(name, indices, shape)
        for axis, index in enumerate(indices):
            dim = self._dims[index]
            if len(dim.variables) == 1 and dim.linear_in(dim.variables[0]):
                value = dim.solve(dim.variables[0], shape[axis], {})
                if value is None:
                    raise ShapeError(f"{name}: extent {shape[axis]} of axis {axis} is not {dim}")
                self._check_range(dim.variables[0], value)

    def select(self, **variables: int) -> int:
        """The category that serves these values of the shape variables, without running.

        Raises
        ------
        ShapeError
            A variable is missing, unknown, or outside its range.
        """
        unknown = set(variables) - set(self._variables)
        missing = set(self._variables) - set(variables)
        if unknown or missing:
            raise ShapeError(f"select: given {sorted(variables)}; allowed: {list(self._variables)}")
        values = {name: _as_int(name, value) for name, value in variables.items()}
        self._check_ranges(values)
        return int(self._select(*(values[name] for name in self._variables)))

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of this library's calls: its tensors in their order, then what is said by name."""
        either, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        try:
            tensors = [inspect.Parameter(name, either) for name in self._order]
            variables = [inspect.Parameter(name, by_name) for name in self._plan.keywords]
        except ValueError as error:  # a name that is a word of Python, such as `in`
            raise AttributeError("__signature__") from error
        return inspect.Signature([*tensors, *variables, inspect.Parameter("out", by_name, default=None)])

    def __call__(self, *positional: Any, out: Any = None, **arguments: Any) -> Any:
        """Compute the operator.

        Parameters
        ----------
        *positional : tensor
            Tensors in the order of the spec.
        out : tensor, optional
            Where the result goes; a new NumPy array otherwise (a torch tensor where an input is one). A
            tuple where there are several outputs, in their order, as the result is then. An output that is
            written to rows of a table is that argument itself, in the result and in `out`.
        **arguments
            Every other tensor by name, constants as `pack` returned them, and the shape variables that no
            tensor's shape determines.

        Raises
        ------
        TensorError
            A tensor is missing, unknown, or of the wrong dtype, device or layout.
        ShapeError
            Shapes do not fit together, or a shape variable is outside its range.
        """
        if positional:
            arguments = self._by_name(positional, arguments)
        try:
            if len(arguments) != len(self._order) + len(self._plan.keywords):
                raise NotLeanError
            given = [arguments[name] for name in self._order]
            return self.lean(given, tuple([arguments[name] for name in self._plan.keywords]), out)
        except Exception:  # the long way says what is wrong
            return self.call_checked(out, arguments)

    def _by_name(self, tensors: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments by name."""
        if len(tensors) > len(self._order):
            raise TensorError(
                f"given {len(tensors)} tensors; allowed: {', '.join(self._order)}, in this order, or by name"
            )
        by_position = dict(zip(self._order, tensors, strict=False))
        twice = sorted(by_position.keys() & named.keys())
        if twice:
            raise TensorError(f"{twice[0]}: given by position and by name; pass it once")
        return by_position | named

    def call_checked(self, out: Any, arguments: dict[str, Any]) -> Any:
        """Compute the operator the long way, which looks at everything; raises what `__call__` does."""
        if not self._allowed.issuperset(arguments):
            unknown = sorted(set(arguments) - self._allowed)
            raise TensorError(f"{unknown[0]}: unknown argument; allowed: {', '.join(sorted(self._allowed))}")
        tensors: list[Any] = []
        shapes: list[tuple[int, ...]] = []
        for name, dtype, is_packed in self._arguments:
            value = arguments.get(name)
            if is_packed:
                tensor, shape = self._constant(name, value)
            elif value is None:
                raise TensorError(f"{name}: missing; pass it by name")
            else:
                is_written = name in self._written
                tensor, shape = accept(name, value, dtype, copies=not is_written, is_written=is_written)
            tensors.append(tensor)
            shapes.append(shape)
        keywords = tuple([as_keyword(name, arguments.get(name)) for name in self._plan.keywords])
        values, output_shapes = self.resolve(shapes, keywords)
        natives = [tensor.native if type(tensor) is Packed else tensor for tensor in tensors]
        given = dict(zip(self._order, tensors, strict=True)), arguments
        result, outputs = settle(self._outputs, out, output_shapes, given, self._check_out)
        if is_empty(output_shapes):
            return result
        dtypes = (facts["dtype"] for facts in self._outputs)
        destinations = [stored(tensor, dtype) for tensor, dtype in zip(outputs, dtypes, strict=True)]
        if out is not None or self._written:
            note_written(outputs)
        first = result if len(outputs) == 1 else result[0]
        run = self._run if isinstance(first, np.ndarray) else self._run_beside_torch
        try:
            run(*natives, *destinations, *values)
        except REFUSALS as error:
            raise refused_by_code(self.folder, error) from error
        return result

    def _constant(self, name: str, value: Any) -> tuple[Any, tuple[int, ...]]:
        if not isinstance(value, Packed):
            given = "missing" if value is None else type(value).__name__
            raise TensorError(f"{name}: {given}; pass what lib.pack({name}=…) returned")
        layout = self._packed[name]["layout"]
        if value.name != name or value.layout != layout:
            raise TensorError(f"{name}: packed as {value.name}, {value.layout}; allowed: {layout}")
        return value, value.shape

    def _check_out(
        self, out: Any, facts: Mapping[str, Any], shape: tuple[int, ...], tensors: list[Any]
    ) -> Any:
        name = facts.get("into", "out")
        destination, given = accept(name, out, facts["dtype"], is_written=True)
        if given != shape:
            raise ShapeError(f"{name}: shape {list(given)}; allowed: {list(shape)}")
        first, end = span(destination)
        for tensor in tensors:
            low, high = tensor.span if type(tensor) is Packed else span(tensor)
            if low < end and first < high:
                raise overlapping(name)
        return destination

    def resolve(self, shapes: list[tuple[int, ...]], keywords: tuple[int, ...]) -> Known:
        """Values of the shape variables and shape of each output, kept for shapes that come again.

        Raises
        ------
        ShapeError
            Shapes do not fit together, or a shape variable is outside its range.
        """
        key = (*shapes, keywords)
        known = self._shapes.get(key)
        if known is None:
            known = self._resolve(shapes, keywords)
            if is_empty(known[1]):  # nothing runs for it
                return known
            self._shapes[key] = known
            extents = (extent for shape in known[1] for extent in shape)
            self._compiled_shapes[key_of(shapes, keywords)] = (digits([*known[0], *extents]), known[1])
            if len(self._shapes) > _MAX_CACHED_SHAPES:
                (*old_shapes, old_keywords), _ = self._shapes.popitem(last=False)
                self._compiled_shapes.pop(key_of(old_shapes, old_keywords), None)
        return known

    def _resolve(self, shapes: list[tuple[int, ...]], keywords: tuple[int, ...]) -> Known:
        """Shape variables from the shapes; every dimension is then checked against its expression."""
        by_name = dict(zip(self._order, shapes, strict=True))
        for name, shape in by_name.items():
            indices = self._inputs[name]["dims"]
            if len(shape) != len(indices):
                raise ShapeError(
                    f"{name}: shape {list(shape)}; allowed: {len(indices)} dimensions, "
                    f"[{', '.join(str(self._dims[k]) for k in indices)}]"
                )
            self._check_fixed(name, indices, shape)
        values: dict[str, int] = dict(zip(self._plan.keywords, keywords, strict=True))
        for step in self._plan.steps:
            extent = by_name[step.tensor][step.axis]
            solved = parse_dim(step.dim_text, "dims").solve(step.variable, extent, values)
            if solved is None:
                raise ShapeError(
                    f"{step.tensor}: extent {extent} of axis {step.axis} is not {step.dim_text} "
                    f"for any {step.variable}"
                )
            values[step.variable] = solved
        output_shapes = tuple(
            tuple(int(self._dims[k].evaluate(values)) for k in facts["dims"]) for facts in self._outputs
        )
        # An empty batch has an empty result, whatever the range.
        empty = {name for name, value in values.items() if value == 0} if is_empty(output_shapes) else set()
        self._check_ranges({name: value for name, value in values.items() if name not in empty})
        for name, shape in by_name.items():
            for axis, index in enumerate(self._inputs[name]["dims"]):
                expected = int(self._dims[index].evaluate(values))
                if shape[axis] != expected:
                    text = ", ".join(f"{n}={v}" for n, v in values.items())
                    raise ShapeError(
                        f"{name}: extent {shape[axis]} of axis {axis}; allowed: {self._dims[index]} "
                        f"= {expected} for {text}"
                    )
        return tuple(values[name] for name in self._variables), output_shapes

    def _check_fixed(self, name: str, indices: str, shape: tuple[int, ...]) -> None:
        for axis, index in enumerate(indices):
            dim = self._dims[index]
            if dim.is_constant and shape[axis] != dim.constant_value():
                raise ShapeError(
                    f"{name}: extent {shape[axis]} of axis {axis}; allowed: {dim.constant_value()}"
                )

    def _check_ranges(self, values: Mapping[str, int]) -> None:
        for name, value in values.items():
            self._check_range(name, value)

    def _check_range(self, name: str, value: int) -> None:
        facts = self._variables[name]
        listed = facts.get("values")
        if not facts["min"] <= value <= facts["max"] or (listed is not None and value not in listed):
            raise ShapeError(f"{name}: {value}; allowed: {_range_text(facts)}")


def refused_by_code(folder: Path, what: object) -> LibraryError:
    """Return the error of a folder that describes other tensors than its code takes."""
    return LibraryError(
        f"{folder}: its code takes other tensors: {one_line(str(what), 160)}; compile it again"
    )


def is_empty(output_shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether no output has an element."""
    return all(0 in shape for shape in output_shapes)


def _packed_shape(facts: Mapping[str, Any], extents: Mapping[str, int]) -> tuple[int, int, int, int]:
    """``(batch, panels, reduction, lanes)`` of a packed tensor."""
    sizes = [1, 1, 1]
    for position, role in enumerate(("batch", "columns", "reduction")):
        for index in facts[role]:
            sizes[position] *= extents[index]
    return sizes[0], -(-sizes[1] // facts["lanes"]), sizes[2], facts["lanes"]


def as_keyword(name: str, value: Any) -> int:
    """A shape variable that is passed by name."""
    if value is None:
        raise ShapeError(f"{name}: missing; no tensor's shape tells it, pass {name}=…")
    return _as_int(name, value)


def _as_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ShapeError(f"{name}: {clip(value)}; allowed: an integer")
    return int(value)


def _dims_text(facts: Mapping[str, Any], dims: Mapping[str, Any]) -> str:
    return f"{facts['dtype']} [{', '.join(str(dims[index]) for index in facts['dims'])}]"


def _range_text(facts: Mapping[str, Any]) -> str:
    values = facts.get("values")
    if values is not None:
        shown = ", ".join(str(v) for v in values[:8])
        return f"one of {shown}{', …' if len(values) > 8 else ''}"
    return f"{facts['min']}…{facts['max']}"
