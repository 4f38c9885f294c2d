"""A library for CUDA, loaded: it takes torch tensors on a GPU and runs on torch's current stream."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from dietcode.errors import LibraryError, ShapeError, TargetError, TensorError
from dietcode.runtime.cuda_constants import PackedOnGpu, Permutations
from dietcode.runtime.lean_call import NotLeanError
from dietcode.runtime.library import Known, Library, as_keyword, is_empty
from dietcode.runtime.manifest import MANIFEST
from dietcode.runtime.outputs import settle
from dietcode.runtime.tensors import (
    check_storage,
    ends_in_storage,
    instead,
    not_contiguous,
    note_written,
    overlapping,
)
from dietcode.workload.text import clip

_MAX_KEPT = 4096  # shapes of calls that are remembered


class CudaLibrary(Library):
    """One tuned operator for a range of shapes, on GPUs.

    A call launches its kernels on torch's current stream of the tensors' device and returns. It waits for
    nothing and copies nothing, and what it allocates comes from torch's allocator, so that CUDA graphs can
    capture it; `prepare` loads the machine code ahead of that. Calls are thread-safe.
    """

    device_type: ClassVar[str] = "cuda"

    def __init__(self, folder: Path, manifest: dict[str, Any], module: Any) -> None:
        super().__init__(folder, manifest, module)
        self._prepare = module["prepare"]
        self._workspace_bytes = module["workspace"]
        self._may_need_workspace = any(manifest["has_workspace"])
        # Values of the variables, the output's shape and dtype, bytes of workspace; by shapes and keywords.
        self._calls: dict[Any, tuple[tuple[int, ...], tuple[int, ...], Any, int]] = {}
        self._alignments: dict[str, int] = manifest["alignment_bytes"]
        self.lean, self.compiled = self.call_lean, None
        for name in (*self._order, *(facts["name"] for facts in self._outputs)):
            alignment = self._alignments[name]
            if type(alignment) is not int or alignment < 1:
                given = f"alignment_bytes of {clip(name)}: {clip(alignment)}"
                raise LibraryError(f"{folder / MANIFEST}: {given}; allowed: 1 or more")
        try:
            self._permutations = Permutations(self._packed, self._inputs, self._order, self._alignments)
        except ValueError as error:
            raise LibraryError(f"{folder / MANIFEST}: {clip(error)}; allowed: each axis once") from error

    def _packing(self, module: Any) -> dict[str, Any]:
        """Return no functions of the code: axes are permuted by PyTorch."""
        return {}

    def _check_packed(self) -> None:
        """Do nothing: `Permutations` looks at it."""

    def packed_tensor(self, name: str, shape: Sequence[int], data: Any) -> PackedOnGpu:
        """Return memory that holds a constant in this library's layout as `pack` does."""
        return PackedOnGpu(name, tuple(shape), self._packed[name]["layout"], data)

    def prepare(self, device: int | None = None) -> None:
        """Load the machine code on one device, so that no call has to.

        Parameters
        ----------
        device : int, optional
            torch's current one by default.

        Raises
        ------
        TargetError
            There is no driver, it is too old, there is no such GPU, or no code for it in the library.
        """
        torch = sys.modules.get("torch")
        if device is None:
            device = torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0
        try:
            self._prepare(device)
        except RuntimeError as error:
            raise TargetError(f"{self.folder}: {str(error).splitlines()[-1]}") from error

    def pack(self, **constants: Any) -> Any:
        """A constant tensor as calls take it: with its axes permuted where code asks for that, else itself.

        It is permuted by PyTorch, on its current stream; do it once, ahead of time.

        Raises
        ------
        TensorError
            It is no tensor of this library, or has the wrong dtype, device or layout.
        ShapeError
            Its shape does not fit.
        """
        if len(constants) != 1 or next(iter(constants)) not in self._inputs:
            raise TensorError(
                f"pack: given {', '.join(constants) or 'nothing'}; allowed: one of {self._order}"
            )
        ((name, value),) = constants.items()
        is_packed = name in self._packed
        alignment = 1 if is_packed else self._alignments[name]
        self._accept(name, value, self._inputs[name]["dtype"], alignment)
        if not is_packed:
            return value
        self.check_shape(name, tuple(value.shape))
        return self._permutations.pack(name, value)

    def call_lean(self, tensors: Sequence[Any], keywords: tuple[Any, ...], out: Any) -> Any:
        """Compute the operator the short way, of shapes that came before; raises anything for the long one.

        This is what a call costs beside its launch. What is left out here (dtype, device, layout, address)
        the library's host part looks at, before it launches anything.

        Parameters
        ----------
        tensors : sequence of tensor
            In the order of the spec.
        keywords : tuple of int
            Shape variables that no tensor's shape determines.
        out : torch.Tensor or None
            Where the result goes.
        """
        values, shape, dtype, num_bytes = self._calls[(*[tensor.shape for tensor in tensors], keywords)]
        if self._packed:
            tensors = self._permutations.natives(list(tensors))
        for tensor in tensors:
            if tensor.requires_grad or tensor.is_neg() or not ends_in_storage(tensor):
                raise NotLeanError
        for value in keywords:
            if type(value) is not int:
                raise NotLeanError
        first = tensors[0]
        if out is None:
            out = first.new_empty(shape, dtype=dtype)
        elif out.requires_grad or out.is_neg() or not ends_in_storage(out):
            raise NotLeanError
        else:
            note_written((out,))
        if num_bytes:
            workspace = first.new_empty(num_bytes, dtype=sys.modules["torch"].uint8)
            self._run(*tensors, out, workspace.data_ptr(), *values)
        else:
            self._run(*tensors, out, 0, *values)
        return out

    def call_checked(self, out: Any, arguments: dict[str, Any]) -> Any:
        """Compute the operator the long way, which looks at everything; raises what `__call__` does."""
        values, shapes = self._checked(arguments, out)
        given = [arguments[name] for name in self._order]
        tensors = [one.data if type(one) is PackedOnGpu else one for one in given]
        outputs = self._outputs_of(arguments, tensors, shapes, out)
        result = outputs[0] if len(outputs) == 1 else tuple(outputs)
        if is_empty(shapes):
            return result
        try:
            num_bytes = self._num_bytes(tensors, outputs, values)
            workspace = tensors[0].new_empty(num_bytes, dtype=sys.modules["torch"].uint8)
            if out is not None or self._written:
                note_written(outputs)
            self._run(*tensors, *outputs, workspace.data_ptr() if num_bytes else 0, *values)
        except (RuntimeError, TypeError, ValueError) as error:
            raise LibraryError(f"{self.folder}: {str(error).splitlines()[-1]}") from error
        if len(outputs) == 1 and not self._written:
            if len(self._calls) >= _MAX_KEPT:
                self._calls.clear()
            keywords = tuple(arguments[name] for name in self._plan.keywords)
            key = (*[tensor.shape for tensor in given], keywords)
            self._calls[key] = (values, shapes[0], outputs[0].dtype, num_bytes)
        return result

    def _outputs_of(
        self, arguments: dict[str, Any], tensors: list[Any], shapes: Sequence[tuple[int, ...]], out: Any
    ) -> list[Any]:
        """Return the tensors that a call writes: those of the caller, tables, or new ones."""
        if out is not None:
            return [out] if len(shapes) == 1 else list(out)
        torch, first = sys.modules["torch"], tensors[0]
        return [
            arguments[facts["into"]]
            if "into" in facts
            else first.new_empty(shape, dtype=getattr(torch, facts["dtype"]))
            for facts, shape in zip(self._outputs, shapes, strict=True)
        ]

    def _num_bytes(self, tensors: list[Any], outputs: list[Any], values: tuple[int, ...]) -> int:
        """Return the bytes of memory that a call needs beside its tensors."""
        if not self._may_need_workspace:
            return 0
        return int(self._workspace_bytes(*tensors, *outputs, *values))

    def _checked(self, arguments: dict[str, Any], out: Any) -> Known:
        """Return what `resolve` does, after checking all arguments; raises what `__call__` raises."""
        if not self._allowed.issuperset(arguments):
            unknown = sorted(set(arguments) - self._allowed)
            raise TensorError(f"{unknown[0]}: unknown argument; allowed: {', '.join(sorted(self._allowed))}")
        shapes, tensors = [], []
        for name, dtype, is_packed in self._arguments:
            value = arguments.get(name)
            seen: Any = self._permutations.checked(name, value) if is_packed else value
            own = seen.data if is_packed else seen
            tensors.append(self._accept(name, own, dtype, self._alignments[name], name in self._written))
            shapes.append(tuple(seen.shape))
        for name, tensor in zip(self._order, tensors, strict=True):
            if tensor.device != tensors[0].device:
                given = f"{name}: on {tensor.device}, but {self._order[0]} is on {tensors[0].device}"
                raise TensorError(f"{given}; pass tensors of one device")
        keywords = tuple(as_keyword(name, arguments.get(name)) for name in self._plan.keywords)
        known = self.resolve(shapes, keywords)
        if out is not None:
            accepted = dict(zip(self._order, tensors, strict=True))
            settle(self._outputs, out, known[1], (accepted, arguments), self._check_output)
        return known

    def _accept(self, name: str, value: Any, dtype: str, alignment: int, is_written: bool = False) -> Any:
        torch = sys.modules.get("torch")
        if value is None:
            raise TensorError(f"{name}: missing; pass it by name")
        if torch is None or not isinstance(value, torch.Tensor):
            raise TensorError(f"{name}: {type(value).__name__}; allowed: a torch tensor on cuda")
        if value.requires_grad:
            raise TensorError(
                f"{name}: requires grad, and this call records no gradient; pass {name}.detach()"
            )
        if value.dtype is not getattr(torch, dtype):
            raise TensorError(f"{name}: dtype {value.dtype}; allowed: {dtype}")
        if not value.is_cuda:
            advice = instead(f"{name}.cuda()", "there", is_written)
            raise TensorError(f"{name}: on {value.device}; this library runs on cuda, {advice}")
        if value.is_neg():
            advice = instead(f"{name}.resolve_neg()", "as a tensor of its own", is_written)
            raise TensorError(f"{name}: a negated view; {advice}")
        check_storage(name, value)
        if not value.is_contiguous():
            raise not_contiguous(name, f"{name}.contiguous()", is_written)
        if value.data_ptr() % alignment:
            advice = instead(f"{name}.clone()", "as a tensor of its own", is_written)
            raise TensorError(f"{name}: its address is no multiple of {alignment} bytes; {advice}")
        return value

    def _check_output(
        self, out: Any, facts: Mapping[str, Any], shape: tuple[int, ...], others: list[Any]
    ) -> Any:
        """Return an output of the caller; `others` are tensors that it must not overlap, inputs first."""
        name = facts.get("into", "out")
        self._accept(name, out, facts["dtype"], self._alignments[facts["name"]], is_written=True)
        if others and out.device != others[0].device:
            raise TensorError(f"{name}: on {out.device}, but {self._order[0]} is on {others[0].device}")
        if tuple(out.shape) != tuple(shape):
            raise ShapeError(f"{name}: shape {list(out.shape)}; allowed: {list(shape)}")
        first, end = out.data_ptr(), out.data_ptr() + out.nbytes
        for tensor in others:
            if tensor.data_ptr() < end and first < tensor.data_ptr() + tensor.nbytes:
                raise overlapping(name)
        return out
