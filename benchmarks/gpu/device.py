"""The CUDA driver by ctypes, and timing by CUDA events. Imports nothing of this project."""

from __future__ import annotations

import ctypes
import math
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_ATTRIBUTES = {"stack_bytes": 3, "registers": 4}
_MAX_SHARED_BYTES = 8  # attribute of a function: what a launch may ask for
_CAPABILITY_MAJOR, _NUM_SMS = 75, 16  # attributes of a device
_MAY_OVERLAP = 6  # attribute of a launch: programmatic stream serialization
_CLUSTER = 4  # attribute of a launch: blocks of a cluster in x, y and z
_OVERLAP_CAPABILITY, _OVERLAP_DRIVER = 9, 12030  # from which on graphs have it too
MIN_SECS = 2e-3  # of one reading: events tell half microseconds
_MAP_BYTES, _MAP_ALIGNMENT = 128, 128  # of a CUtensorMap
_L2_PROMOTION = 3  # CU_TENSOR_MAP_L2_PROMOTION_L2_256B
_L2_BYTES = 64 << 20  # inputs rotate through more than this, so that none is in the cache when it comes again
_MAX_ROTATIONS = 512
WARM_SECS = 0.02  # of replays before the first reading: an idle GPU's clock is slow


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: one that is set to a number, or to extents in x, y and z."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("unused", ctypes.c_uint),
        ("value", 3 * ctypes.c_uint),
        ("rest", ctypes.c_char * 52),
    )


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((n, ctypes.c_uint) for n in ("x", "y", "z", "threads_x", "threads_y", "threads_z", "shared_bytes")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    )


class GpuError(Exception):
    """What the driver refuses; one line."""


def need_gpu() -> Any:
    """torch, on a machine with a GPU.

    Raises
    ------
    SystemExit
        There is none, or no PyTorch that can use it; the message says which.
    """
    try:
        import torch
    except ImportError:
        raise SystemExit("no GPU benchmark: PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise SystemExit("no GPU benchmark: PyTorch finds no GPU on this machine")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = (
        True  # its fastest algorithm for each shape, found before anything is timed
    )
    torch.zeros(1, device="cuda")  # makes the context current
    return torch


class Driver:
    """The driver, in the context that is current."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise GpuError("no NVIDIA driver: libcuda.so.1 is not found") from None

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise GpuError(f"{name}: {(text.value or b'unknown').decode()} ({status})")

    def attribute(self, number: int) -> int:
        """An attribute of the GPU of the context."""
        value, device = ctypes.c_int(), ctypes.c_int()
        self._call("cuCtxGetDevice", ctypes.byref(device))
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def can_overlap(self) -> bool:
        """Whether a function may begin while another ends: by the driver, and the GPU of the context."""
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        is_known = version.value >= _OVERLAP_DRIVER
        return is_known and self.attribute(_CAPABILITY_MAJOR) >= _OVERLAP_CAPABILITY

    def load(self, image: bytes) -> Module:
        """Load machine code, or PTX that ends in a zero.

        Raises
        ------
        GpuError
            It is not for this GPU, or for a newer driver.
        """
        handle = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(handle), image)
        return Module(self, handle)

    def tensor_map(self, one: Mapping[str, Any], address: int) -> Any:
        """A tensor map of the tensor at an address, as a kernel takes it by value; zeros outside of it.

        Raises
        ------
        GpuError
            The driver makes none.
        """
        area, axes = (ctypes.c_char * (_MAP_BYTES + _MAP_ALIGNMENT))(), len(one["extents"])
        place = (ctypes.c_char * _MAP_BYTES).from_buffer(area, -ctypes.addressof(area) % _MAP_ALIGNMENT)
        self._call(
            "cuTensorMapEncodeTiled",
            place,
            one["data_type"],
            axes,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * axes)(*one["extents"]),
            (ctypes.c_uint64 * axes)(*one["strides"]),
            (ctypes.c_uint32 * axes)(*one["box"]),
            (ctypes.c_uint32 * axes)(*(axes * [1])),
            0,
            one["swizzle"],
            _L2_PROMOTION,
            0,
        )
        return place


class Module:
    """Loaded code."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p) -> None:
        self.driver, self._handle = driver, handle

    def function(
        self,
        name: str,
        shared_bytes: int = 0,
        overlaps: bool = False,
        cluster: int = 1,
        persistent: bool = False,
    ) -> Function:
        """One function of it, whose launches ask for so much shared memory of a block.

        With `overlaps` they may begin while the one before them ends, where the GPU and the driver can that.
        They are of clusters of so many blocks in x; with `persistent` of no more than the GPU runs at a time.

        Raises
        ------
        GpuError
            There is no such function, or less shared memory.
        """
        handle = ctypes.c_void_p()
        self.driver._call("cuModuleGetFunction", ctypes.byref(handle), self._handle, name.encode())
        overlaps = overlaps and self.driver.can_overlap()
        return Function(self.driver, handle, shared_bytes, overlaps, cluster, persistent)


class Function:
    """A function that can be launched."""

    def __init__(
        self,
        driver: Driver,
        handle: ctypes.c_void_p,
        shared_bytes: int,
        overlaps: bool = False,
        cluster: int = 1,
        persistent: bool = False,
    ) -> None:
        self._driver, self._handle, self._shared_bytes = driver, handle, shared_bytes
        self._cluster, self._persistent = cluster, persistent
        self._attribute = _Attribute(_MAY_OVERLAP, 0, (1, 0, 0)) if overlaps else None
        if cluster > 1:
            self._attribute = _Attribute(_CLUSTER, 0, (cluster, 1, 1))
        if shared_bytes:
            driver._call("cuFuncSetAttribute", handle, _MAX_SHARED_BYTES, shared_bytes)

    def facts(self) -> dict[str, int]:
        """Registers and stack of a thread, as the driver has them."""
        found = {}
        for name, number in _ATTRIBUTES.items():
            value = ctypes.c_int()
            self._driver._call("cuFuncGetAttribute", ctypes.byref(value), number, self._handle)
            found[name] = value.value
        return found

    def resident_blocks(self, threads: int) -> int:
        """Blocks that one multiprocessor holds at a time, as the driver has it."""
        count = ctypes.c_int()
        self._driver._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(count),
            self._handle,
            threads,
            ctypes.c_size_t(self._shared_bytes),
        )
        return count.value

    def blocks_at_a_time(self, threads: int) -> int:
        """Blocks that the GPU runs at a time, in whole clusters."""
        if self._cluster == 1:
            return self.resident_blocks(threads) * self._driver.attribute(_NUM_SMS)
        config, count = self._config((self._cluster, 1, 1), (threads, 1, 1), None), ctypes.c_int()
        given = (ctypes.byref(count), self._handle, ctypes.byref(config))
        self._driver._call("cuOccupancyMaxActiveClusters", *given)
        return count.value * self._cluster

    def _config(self, grid: Sequence[int], threads: Sequence[int], stream: int | None) -> _Config:
        assert self._attribute is not None
        shape = (*grid, *threads, self._shared_bytes)
        return _Config(*shape, stream, ctypes.pointer(self._attribute), 1)

    def bind(
        self,
        grid: Sequence[int],
        threads: int | Sequence[int],
        values: Sequence[int],
        maps: Sequence[tuple[Mapping[str, Any], int]] = (),
    ) -> Callable[[int], None]:
        """A launch with all arguments at hand; called with the stream.

        Parameters
        ----------
        grid, threads : sequence of int
            Along x, y and z; those that are left out are 1. Of a persistent grid one block for each tile.
        values : sequence of int
            64-bit numbers and addresses.
        maps : sequence of (mapping, int)
            Tensor maps behind them, as a pack describes them, each of the tensor at an address.
        """
        kept: list[Any] = [ctypes.c_int64(value) for value in values]
        kept += [self._driver.tensor_map(one, address) for one, address in maps]
        addresses = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(value) for value in kept))
        x, y, z = [*grid, 1][:3]
        of_block = [*([threads] if isinstance(threads, int) else threads), 1, 1][:3]
        if self._persistent:
            x = min(x, self.blocks_at_a_time(math.prod(of_block)))

        def launch_with_attribute(stream: int, _kept: Any = kept) -> None:
            config = self._config((x, y, z), of_block, stream)
            self._driver._call("cuLaunchKernelEx", ctypes.byref(config), self._handle, addresses, None)

        def launch(stream: int, _kept: Any = kept) -> None:
            self._driver._call(
                "cuLaunchKernel",
                self._handle,
                x,
                y,
                z,
                *of_block,
                self._shared_bytes,
                ctypes.c_void_p(stream),
                addresses,
                None,
            )

        return launch if self._attribute is None else launch_with_attribute


def compile_text(text: str, arch: str) -> bytes:
    """Machine code by this machine's nvcc, where the packed one does not load.

    Raises
    ------
    GpuError
        There is no nvcc, or it refuses the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        source.write_text(text)
        command = ["nvcc", "-cubin", f"-arch={arch}", "-std=c++17", str(source), "-o", str(cubin)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise GpuError(f"nvcc cannot be run: {error}") from error
        if done.returncode != 0:
            raise GpuError(f"nvcc: {done.stderr.strip()[:300]}")
        return cubin.read_bytes()


def rotations_for(num_bytes: int) -> int:
    """Copies of a call's tensors that are more than the cache holds; of very small ones the most allowed."""
    return max(2, min(_MAX_ROTATIONS, math.ceil(2 * _L2_BYTES / max(1, num_bytes))))


def seconds_of(torch: Any, call: Callable[[int], Any], rotations: int, readings: int = 5) -> float:
    """Median seconds of one call, the GPU's time alone: calls are captured in a graph and replayed.

    Parameters
    ----------
    call : callable
        Takes which copy of the tensors it uses, 0 to `rotations` - 1, and launches on the current stream.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for turn in range(rotations):  # warm: compiled, autotuned, loaded
            call(turn)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # What calls return is kept, so that each writes to memory of its own, as one does that is given it.
        _outputs = [call(turn) for turn in range(rotations)]
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def reading(replays: int) -> float:
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / replays

    reading(1)
    once = max(reading(1), 1e-7)
    reading(math.ceil(WARM_SECS / once))
    replays = max(1, math.ceil(MIN_SECS / max(reading(1), 1e-7)))
    return statistics.median(reading(replays) for _ in range(readings)) / rotations
