"""A compiled model: called as the exported program is."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import DietCodeError, LibraryError, ShapeError, TensorError
from dietcode.graph.signature import built_output, called_inputs, flatten_arguments, input_names
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.manifest import sha256_file
from dietcode.runtime.models.executable import Executable, Step
from dietcode.runtime.models.guard import guard_of
from dietcode.runtime.models.halves import HalfPrecision
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.models.prepared import Prepared
from dietcode.runtime.models.slot_program import SlotProgram
from dietcode.runtime.models.storages import StorageMemory, most_bytes, storage_offsets
from dietcode.runtime.reopened import Reopened
from dietcode.runtime.tensors import accept, readable
from dietcode.workload.text import one_line

_MAX_PREPARED = 128
_MAX_BOUND = 4096
# What steps raise that do not fit together.
_MISFITS = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError)
_GROWTH = 1.5  # of memory, where a size needs more


class Workplace:
    """What one call at a time works in: memory, and the shapes that are prepared in it.

    Parameters
    ----------
    executable : Executable
    """

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._memory = StorageMemory()
        self._prepared: OrderedDict[Any, Prepared] = OrderedDict()

    def prepared(self, program: SlotProgram, binding: Mapping[str, int]) -> Prepared:
        """Return a program for a binding, prepared before or now."""
        key = (program, *binding.values())
        found = self._prepared.get(key)
        if found is not None:
            self._prepared.move_to_end(key)
            return found
        offsets, num_bytes = storage_offsets(self._executable, binding)
        if num_bytes > self._memory.num_bytes:
            self._prepared.clear()  # which lie in the old memory
            # Sizes that grow step by step, as those of caches, do not each take new memory.
            ahead = min(_GROWTH * self._memory.num_bytes, most_bytes(self._executable))
            self._memory.reserve(max(num_bytes, int(ahead)))
        found = self._prepared[key] = Prepared(self._executable, program, binding, self._memory, offsets)
        if len(self._prepared) > _MAX_PREPARED:
            self._prepared.popitem(last=False)
        return found


class Model(Reopened):
    """A compiled model, for any shapes in its ranges.

    Calls are thread-safe: each has a workplace of its own while it runs. Tensors are never copied where they
    are contiguous. Made by `dietcode.load`.

    Parameters
    ----------
    folder : Path
    manifest : dict
    executable : Executable
    alone, beside_torch : Kernels
        For calls with NumPy's arrays, and with PyTorch's tensors.
    weights : Path, optional
        A file of weights that are not the bundle's own.

    Attributes
    ----------
    executable : Executable
    guard : ShapeGuard
    """

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, Any],
        executable: Executable,
        alone: Kernels,
        beside_torch: Kernels,
        weights: Path | None = None,
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self.executable, self._weights = executable, weights
        self._kernels = alone, beside_torch
        self._programs: list[SlotProgram | None] = [None, None]
        self.guard = guard_of(executable)
        self._halves = HalfPrecision(executable.signature) if "halves" in executable.signature else None
        self._free: list[Workplace] = []
        self._bindings: dict[tuple[tuple[int, ...], ...], dict[str, int]] = {}

    def __repr__(self) -> str:
        """Return one line with the inputs and their ranges."""
        types = called_inputs(self.executable.signature, self.executable.inputs)
        names = input_names(self.executable.signature)  # in the order of calls
        inputs = ", ".join(f"{name}: {types[name]}" for name in names)
        ranges = ", ".join(f"{name} in {low}…{high}" for name, (low, high) in self.executable.ranges.items())
        return f"<dietcode.Model {self.executable.name}({inputs}){'; ' + ranges if ranges else ''}>"

    def __call__(self, *positional: Any, **keyword: Any) -> Any:
        """Run the model.

        Parameters
        ----------
        *positional, **keyword
            As the exported program takes them: NumPy arrays, PyTorch's tensors, or anything with DLPack.

        Returns
        -------
        tree of arrays or tensors
            As the exported program returns it: PyTorch's tensors where an input is one, NumPy arrays
            elsewhere.

        Raises
        ------
        TensorError
            An input is missing, or has another dtype or device.
        ShapeError
            A shape, a relation between shapes or a range is not the model's; or a position in an input lies
            outside of the tensor that it is a position in; or there is no memory for tensors of these sizes.
        LibraryError
            The bundle describes steps that do not fit together.
        """
        given = flatten_arguments(self.executable.signature, positional, keyword)
        outputs = self.flat_call([given[name] for name in self.executable.inputs])
        return built_output(self.executable.signature["output"], iter(outputs))

    def flat_call(self, values: Sequence[Any]) -> list[Any]:
        """Return the outputs as a list, for inputs in order; otherwise as a call."""
        arrays, some_torch = [], False
        halves = self._halves
        for (name, type_), value in zip(self.executable.inputs.items(), values, strict=True):
            array, is_torch = input_array(name, halves.widened(name, value) if halves else value, type_)
            arrays.append(array)
            some_torch = some_torch or is_torch
        if halves and not some_torch:
            halves.check_numpy()
        outputs = self._run(arrays, some_torch)
        if some_torch:
            from_numpy = sys.modules["torch"].from_numpy
            outputs = [from_numpy(one) for one in outputs]
        return halves.narrowed(outputs) if halves else outputs

    def torch_module(self) -> Any:
        """Return a `torch.nn.Module`, a `dietcode.runtime.models.torch_module.ModelModule`.

        It is one opaque operator where PyTorch compiles or exports what calls it.

        Raises
        ------
        TensorError
            The model has no input.
        ImportError
            PyTorch is not installed.
        """
        from dietcode.runtime.models.torch_module import ModelModule

        return ModelModule(self)

    @property
    def identity(self) -> str:
        """Name and digest, the same for the same bundle with the same weights."""
        facts = [json.dumps(self.manifest, sort_keys=True)]
        if self._weights is not None:
            facts.append(sha256_file(self._weights))
        digest = hashlib.sha256("".join(facts).encode()).hexdigest()[:16]
        return f"{self.executable.name}-{digest}"

    def step_secs(self, *positional: Any, **keyword: Any) -> list[tuple[Step, float]]:
        """Return the seconds of each step of a call, for a profile; arguments are those of a call."""
        given = flatten_arguments(self.executable.signature, positional, keyword)
        return self.flat_step_secs([given[name] for name in self.executable.inputs])

    def flat_step_secs(self, values: Sequence[Any]) -> list[tuple[Step, float]]:
        """Return the seconds of each step of a call, for inputs in order; otherwise as `step_secs`."""
        inputs = zip(self.executable.inputs.items(), values, strict=True)
        halves = self._halves or HalfPrecision({})
        arrays = [input_array(name, halves.widened(name, value), type_)[0] for (name, type_), value in inputs]
        return self._run(arrays, "torch" in sys.modules, Prepared.step_secs)

    def _bound(self, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        """Return the value of each dimension; shapes that came before are not checked again."""
        binding = self._bindings.get(shapes)
        if binding is None:
            binding = self.guard.bind(shapes)
            if len(self._bindings) >= _MAX_BOUND:
                self._bindings.clear()
            self._bindings[shapes] = binding
        return binding

    def _run(
        self,
        arrays: Sequence[Any],
        beside_torch: bool,
        run: Callable[[Prepared, Sequence[Any]], list[Any]] = Prepared.__call__,
    ) -> list[Any]:
        binding = self._bound(tuple([array.shape for array in arrays]))
        try:
            workplace = self._free.pop()
        except IndexError:  # another thread has the others
            workplace = Workplace(self.executable)
        try:
            program = self._programs[beside_torch] or self._program(beside_torch)
            return run(workplace.prepared(program, binding), arrays)
        except DietCodeError:
            raise
        except MemoryError as error:
            sizes = ", ".join(f"{name} = {value}" for name, value in binding.items())
            raise ShapeError(
                f"{self.executable.name}: no memory for {sizes or 'a call'}; pass smaller inputs"
            ) from error
        except _MISFITS as error:
            empty = [name for name, value in binding.items() if not value]
            if empty:
                said = f"{', '.join(empty)} is 0, of which a step has no result"
                raise ShapeError(f"{said}; allowed: at least 1") from error
            raise self._unfit(error) from error
        finally:
            self._free.append(workplace)

    def prepare(self) -> None:
        """Decide what calls do, for all sizes, so that the first one need not.

        Raises
        ------
        LibraryError
            The bundle describes steps that do not fit together.
        """
        try:
            self._program("torch" in sys.modules)
        except DietCodeError:
            raise
        except _MISFITS as error:
            raise self._unfit(error) from error

    def _unfit(self, error: Exception) -> LibraryError:
        what = one_line(f"{type(error).__name__}: {error}")
        return LibraryError(f"{self.folder}: a step cannot be computed: {what}")

    def _program(self, beside_torch: bool) -> SlotProgram:
        """Return what calls do; threads that are first together may decide it twice."""
        program = SlotProgram(self.executable, self._kernels[beside_torch])
        self._programs[beside_torch] = program
        return program


def input_array(name: str, value: Any, type_: TensorType) -> tuple[Any, bool]:
    """Return an input as a contiguous array, and whether it is a tensor of PyTorch's."""
    if isinstance(value, bool | int | float) and type_.rank == 0:
        value = _from_number(name, value, type_)
    elif isinstance(value, np.generic):
        value = np.asarray(value)
    array, shape = accept(name, value, type_.dtype, any_layout=True)
    if isinstance(array, np.ndarray):
        return array.reshape(shape), False  # what is copied has an axis at least
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.numpy(), True
    return readable(np.from_dlpack(array)), False


def _from_number(name: str, value: bool | int | float, type_: TensorType) -> Any:
    """Return a Python number in an input's dtype, which has to hold it: 1.5 is no int64."""
    kinds = "biuf" if isinstance(value, bool) else "iuf" if isinstance(value, int) else "f"
    fits = np.dtype(type_.dtype).kind in kinds
    try:
        return np.asarray(value, type_.dtype if fits else None).astype(type_.dtype, casting="safe")
    except (OverflowError, TypeError) as error:
        raise TensorError(f"{name}: {value!r}; allowed: {type_.dtype}") from error
