"""What was packed, as the GPU's machine sees it: kernels that can be called on torch tensors."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from block_graph import block_value
from convolution import convolution
from device import Driver, GpuError, compile_text, rotations_for
from lines import read_facts

FORMAT = "dietcode-gpu-pack/10"
_LAUNCHED = ("symbol", "shared_bytes", "overlaps", "cluster", "persistent")  # what `Module.function` is told
_LOCAL = "compiled-here"
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # of the output, relative
_MAX_ERROR = 1e-4  # of what is computed in float32, relative to the largest value


class KernelFiles:
    """Machine code and text of kernels in one archive of a folder; what was compiled here comes first."""

    def __init__(self, folder: Path, name: str, arch: str) -> None:
        self._folder, self._arch = folder, arch
        self._kernels = zipfile.ZipFile(folder / name)

    def file(self, name: str) -> bytes:
        """Machine code, or text, of a kernel."""
        own = self._folder / _LOCAL / name
        return own.read_bytes() if own.is_file() else self._kernels.read(name)

    def is_compiled_here(self, name: str) -> bool:
        """Whether the machine code of a kernel is this machine's nvcc's."""
        return (self._folder / _LOCAL / f"{name}.cubin").is_file()

    def compile_here(self, names: Iterable[str]) -> None:
        """Compile kernels by this machine's nvcc, where its driver is older than what was packed.

        What an earlier run compiled stays, so that one that was ended is gone on with.

        Raises
        ------
        GpuError
            There is no nvcc, or it refuses a text.
        """
        folder = self._folder / _LOCAL
        folder.mkdir(exist_ok=True)
        texts = {name: self._kernels.read(f"{name}.cu").decode() for name in names}

        def compile_one(name: str) -> None:
            path = folder / f"{name}.cubin"
            if not path.exists():
                part = path.with_suffix(".part")
                part.write_bytes(compile_text(texts[name], self._arch))
                part.replace(path)

        with ThreadPoolExecutor() as pool:
            list(pool.map(compile_one, texts))


class Pack:
    """One workload: its instances, and micro-kernels with their machine code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = read_facts(folder)
        if self.facts["format"] != FORMAT:
            raise SystemExit(f"{folder}: format {self.facts['format']}; this benchmark reads {FORMAT}")
        self.files = KernelFiles(folder, "kernels.zip", self.facts["arch"])

    def file(self, name: str) -> bytes:
        """Machine code, or text, of a micro-kernel; what `compile_here` made comes first."""
        return self.files.file(name)

    @property
    def max_error(self) -> float:
        """Largest error against float64 of the same inputs, relative to the largest value."""
        return _MAX_ERROR + _ROUNDING[self.facts["dtypes"][self.facts["output"]]]

    def compile_here(self) -> None:
        """Compile all, see `KernelFiles.compile_here`.

        Raises
        ------
        GpuError
            There is no nvcc, or it refuses a text.
        """
        self.files.compile_here(candidate["file"] for candidate in self.facts["candidates"])


def ready(pack: Pack) -> Driver:
    """The driver, once it loads what was packed; compiled anew where it does not.

    Raises
    ------
    SystemExit
        It does not load what nvcc made of it either, or there is no nvcc.
    """
    try:
        driver = Driver()
        first = pack.facts["candidates"][0]["file"]
        try:
            driver.load(pack.file(f"{first}.cubin"))
        except GpuError as error:
            print(f"{error}: compiling for this driver", flush=True)
            pack.files.compile_here([first])
            driver.load(pack.file(f"{first}.cubin"))  # before all others are compiled
        if pack.files.is_compiled_here(first):
            pack.compile_here()
    except GpuError as error:
        raise SystemExit(str(error)) from error
    return driver


class Tensors:
    """Copies of one instance's tensors, normal numbers in the dtypes of the workload."""

    def __init__(
        self,
        torch: Any,
        pack: Pack,
        instance: Mapping[str, Any],
        copies: int | None = None,
        device: str = "cuda",
    ) -> None:
        shapes: dict[str, list[int]] = instance["shapes"]
        dtypes = pack.facts["dtypes"]
        num_bytes = sum(_BYTES[dtypes[n]] * torch.Size(shape).numel() for n, shape in shapes.items())
        self.copies = copies or rotations_for(num_bytes)
        self.instance, self.output, self.device = instance, pack.facts["output"], device
        generator = torch.Generator(device=device).manual_seed(0)
        self.sets = [
            {
                n: torch.randn(shape, dtype=getattr(torch, dtypes[n]), device=device, generator=generator)
                for n, shape in shapes.items()
            }
            for _ in range(self.copies)
        ]
        scales: dict[str, float] = (pack.facts.get("block") or {}).get("scales", {})
        for given in self.sets:
            for name, scale in scales.items():
                given[name].mul_(scale)
        # Constants as micro-kernels take them, packed once as a library packs them.
        self.packed = [
            {name: packed_constant(given[name], facts) for name, facts in pack.facts["packed"].items()}
            for given in self.sets
        ]
        self._expected: Any = None

    def error_of(self, torch: Any, pack: Pack, output: Any = None) -> float:
        """Largest error of an output, by default the first copy's, against float64, over the largest value.

        The inputs are what rounding left of them; that error is not counted.
        """
        given = self.sets[0]
        if self._expected is None:  # the inputs stay as they are
            self._expected = reference(torch, pack, {name: value.double() for name, value in given.items()})
        found = given[self.output] if output is None else output
        difference = (found.double().reshape(self._expected.shape) - self._expected).abs().max()
        return float(difference / self._expected.abs().max().clamp(min=1.0))


def packed_constant(value: Any, facts: Mapping[str, Any]) -> Any:
    """A constant with its axes permuted as a pack says: split where an outer extent is given."""
    extents: list[int] = []
    for extent, outer in zip(value.shape, facts["outer"], strict=True):
        extents += [extent] if outer is None else [outer, extent // outer]
    order = [axis for own in facts["axes"] for axis in own]
    shape = [math.prod(extents[axis] for axis in own) for own in facts["axes"]]
    return value.reshape(extents).permute(order).reshape(shape).contiguous()


def reference(torch: Any, pack: Pack, given: Mapping[str, Any]) -> Any:
    """What the workload computes, in the dtype of the tensors."""
    facts = pack.facts
    if facts.get("block") is not None:
        return block_value(torch, facts["block"], given)
    operands = [given[name] for name in facts["operands"]]
    if facts["conv2d"] is None:
        value = torch.einsum(facts["einsum"], *operands)
    else:
        value = convolution(torch, facts["conv2d"], *operands)
    for stage in facts["stages"]:
        kind, tensor = stage["kind"], stage["tensor"]
        if kind in {"bias", "residual"}:
            value = value + given[tensor]
        elif kind == "scale":
            value = value * stage["value"]
        elif kind == "clip":
            value = torch.clamp(value, *stage["value"])
        elif kind in {"relu", "tanh", "sigmoid"}:
            value = getattr(torch, kind)(value)
        elif kind in {"silu", "hardswish", "hardsigmoid"}:
            value = getattr(torch.nn.functional, kind)(value)
        else:
            value = torch.nn.functional.gelu(value, approximate="tanh" if kind == "gelu-tanh" else "none")
    return value


class MicroKernel:
    """One packed micro-kernel, loaded."""

    def __init__(self, driver: Driver, pack: Pack, candidate: Mapping[str, Any]) -> None:
        self.candidate, self._dynamic = candidate, pack.facts["dynamic"]
        module = driver.load(pack.file(f"{candidate['file']}.cubin"))
        self._functions = [module.function(*(f[name] for name in _LAUNCHED)) for f in candidate["functions"]]
        # A block function for each alignment class: what most takes counts.
        of_classes = [self._functions[number].facts() for number in candidate["blocks"]]
        self.facts = {name: max(own[name] for own in of_classes) for name in of_classes[0]} | {
            "classes": len(of_classes),
            **{name: candidate[name] for name in ("shared_bytes", "code_bytes")},
        }

    def block_of(self, call: Mapping[str, Any]) -> int:
        """Number of the block function, of one alignment class, that a packed call launches."""
        return next(number for number in self.candidate["blocks"] if number in call["functions"])

    def wave_blocks(self, num_sms: int, block: int) -> int:
        """Blocks of a block function, by its number, that the GPU runs at a time."""
        threads = self.candidate["functions"][block]["threads"]
        return num_sms * self._functions[block].resident_blocks(threads)

    def bind(self, torch: Any, tensors: Tensors, which: str) -> Callable[[int], None]:
        """``call(turn)`` for all copies of tensors; `which` instances they are of: instances, or sweep."""
        instance, calls, kept = tensors.instance, [], []
        shape, functions = self.candidate["grids"][which][instance["index"]], self.candidate["functions"]
        for given, packed in zip(tensors.sets, tensors.packed, strict=True):
            workspace = torch.empty(max(1, shape["workspace"]), dtype=torch.float32, device=tensors.device)
            kept.append(workspace)
            addresses = {name: value.data_ptr() for name, value in (given | packed).items()}
            for name, first in shape["regions"].items():
                addresses[name] = workspace.data_ptr() + 4 * first
            sizes = [instance["extents"][letter] for letter in self._dynamic]
            calls.append(
                [
                    self._functions[number].bind(
                        grid,
                        functions[number]["threads"],
                        [*(addresses[n] for n in functions[number]["arguments"]), *sizes],
                        [(one, addresses[one["argument"]]) for one in maps],
                    )
                    for number, grid, maps in zip(
                        shape["functions"], shape["grids"], shape["maps"], strict=True
                    )
                ]
            )

        def call(turn: int, _kept: Any = kept) -> None:
            stream = torch.cuda.current_stream().cuda_stream if tensors.device == "cuda" else 0
            for launch in calls[turn]:
                launch(stream)

        return call
