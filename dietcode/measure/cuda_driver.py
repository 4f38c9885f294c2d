"""The CUDA driver by ctypes: what measuring on a GPU asks of ``libcuda.so.1``. Needs no PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from dietcode.errors import CandidateError
from dietcode.search_space.cuda.bulk_maps import TensorMap

NAME = "libcuda.so.1"
NO_DEVICE = 100
OUT_OF_MEMORY = 2
_P, _I, _U, _Z, _F = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_float
_ADDRESS = ctypes.c_uint64  # CUdeviceptr
_ENTRIES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U,),
    "cuDriverGetVersion": (_P,),
    "cuGetErrorName": (_I, _P),
    "cuDeviceGetCount": (_P,),
    "cuDeviceGet": (_P, _I),
    "cuDeviceGetName": (_P, _I, _I),
    "cuDeviceGetAttribute": (_P, _I, _I),
    "cuDeviceGetPCIBusId": (_P, _I, _I),
    "cuDevicePrimaryCtxRetain": (_P, _I),
    "cuCtxSetCurrent": (_P,),
    "cuCtxSynchronize": (),
    "cuCtxGetDevice": (_P,),
    "cuMemAlloc_v2": (_P, _Z),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemcpyHtoD_v2": (_ADDRESS, _P, _Z),
    "cuMemcpyDtoH_v2": (_P, _ADDRESS, _Z),
    "cuMemcpyDtoD_v2": (_ADDRESS, _ADDRESS, _Z),
    "cuModuleLoadData": (_P, _P),
    "cuModuleUnload": (_P,),
    "cuModuleGetFunction": (_P, _P, _P),
    "cuFuncGetAttribute": (_P, _I, _P),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_P, _P, _I, _Z),
    "cuOccupancyMaxActiveClusters": (_P, _P, _P),
    "cuTensorMapEncodeTiled": (_P, _I, _U, _ADDRESS, *(4 * [_P]), *(4 * [_I])),
    "cuLaunchKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P),
    "cuLaunchKernelEx": (_P, _P, _P, _P),
    "cuStreamCreate": (_P, _U),
    "cuStreamSynchronize": (_P,),
    "cuStreamBeginCapture_v2": (_P, _I),
    "cuStreamEndCapture": (_P, _P),
    "cuGraphInstantiateWithFlags": (_P, _P, ctypes.c_uint64),
    "cuGraphLaunch": (_P, _P),
    "cuGraphExecDestroy": (_P,),
    "cuGraphDestroy": (_P,),
    "cuEventCreate": (_P, _U),
    "cuEventRecord": (_P, _P),
    "cuEventSynchronize": (_P,),
    "cuEventElapsedTime": (_P, _P, _P),
}
_STACK_BYTES, _REGISTERS, _DYNAMIC_SHARED = 3, 4, 8  # CU_FUNC_ATTRIBUTE_…
_STATIC_SHARED_BYTES = 48 << 10  # a block may have more if its function allows it
_MAP_BYTES, _MAP_ALIGNMENT = 128, 128  # of a CUtensorMap
_L2_PROMOTION = 3  # CU_TENSOR_MAP_L2_PROMOTION_L2_256B
_NON_BLOCKING, _RELAXED = 1, 2  # of a stream; of a capture
_MAY_OVERLAP = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_NUM_SMS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_CAPABILITY_MAJOR, _OVERLAP_CAPABILITY = 75, 9  # older GPUs have no functions that wait for others


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: one that is set to a number, or to extents in x, y and z."""

    _fields_ = (("id", _U), ("unused", _U), ("value", 3 * _U), ("rest", ctypes.c_char * 52))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, _U) for name in ("x", "y", "z", "threads_x", "threads_y", "threads_z", "shared_bytes")),
        ("stream", _P),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", _U),
    )


def map_arguments(one: TensorMap, address: int) -> tuple[Any, ...]:
    """Return what ``cuTensorMapEncodeTiled`` is given behind the place of the map, as ctypes has it.

    Outside of the tensor are zeros, nothing is interleaved, and neighbouring elements are taken.

    Parameters
    ----------
    address : int
        Of the tensor.
    """
    axes = len(one.extents)
    return (
        one.data_type,
        axes,
        ctypes.c_uint64(address),
        (ctypes.c_uint64 * axes)(*one.extents),
        (ctypes.c_uint64 * max(1, axes - 1))(*one.strides),
        (ctypes.c_uint32 * axes)(*one.box),
        (ctypes.c_uint32 * axes)(*(axes * [1])),
        0,
        one.swizzle,
        _L2_PROMOTION,
        0,
    )


class GpuError(CandidateError):
    """An error of the driver or of a kernel; `status` is the driver's, -1 where it is unknown."""

    def __init__(self, message: str, status: int = -1) -> None:
        self.status = status
        super().__init__(message)


class Driver:
    """The driver of this machine, initialised.

    Raises
    ------
    OSError
        It is not installed.
    GpuError
        It does not start, as with `NO_DEVICE`.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(NAME)
        self._functions: dict[str, Any] = {}
        for name, arguments in _ENTRIES.items():
            try:
                self._functions[name] = getattr(library, name)
            except AttributeError:
                raise GpuError(f"the NVIDIA driver lacks {name}; install a newer one") from None
            self._functions[name].argtypes = arguments
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises
        ------
        GpuError
            It reports an error.
        """
        status = self._functions[name](*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._functions["cuGetErrorName"](status, ctypes.byref(text))
            raise GpuError(f"{name}: {(text.value or b'unknown').decode()} ({status})", status)

    def _get(self, kind: Callable[[], Any], name: str, *arguments: Any) -> Any:
        """Return the value that a function writes to its first argument."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    @property
    def version(self) -> int:
        """Version of CUDA that it supports: 13000 for 13.0."""
        return int(self._get(_I, "cuDriverGetVersion"))

    @property
    def num_devices(self) -> int:
        """GPUs that this process may see."""
        return int(self._get(_I, "cuDeviceGetCount"))

    def name(self, index: int) -> str:
        """Return the name of a GPU, as its vendor calls it."""
        return self._text("cuDeviceGetName", index)

    def bus_id(self, index: int) -> str:
        """Return the number of a GPU on this machine's PCI bus, as in ``0000:1b:00.0``."""
        return self._text("cuDeviceGetPCIBusId", index)

    def _text(self, name: str, index: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.call(name, buffer, len(buffer), self._get(_I, "cuDeviceGet", index))
        return buffer.value.decode(errors="replace")

    def attribute(self, index: int, number: int) -> int:
        """Return an attribute of a GPU, by its number in CUdevice_attribute."""
        return int(self._get(_I, "cuDeviceGetAttribute", number, self._get(_I, "cuDeviceGet", index)))

    def use(self, index: int) -> None:
        """Select a GPU for this thread, in the context that all libraries of a process share."""
        device = self._get(_I, "cuDeviceGet", index)
        self.call("cuCtxSetCurrent", self._get(_P, "cuDevicePrimaryCtxRetain", device))

    @property
    def can_overlap(self) -> bool:
        """Whether a function may begin while another ends, on the GPU that is in use."""
        number = self._get(_I, "cuCtxGetDevice")
        return int(self._get(_I, "cuDeviceGetAttribute", _CAPABILITY_MAJOR, number)) >= _OVERLAP_CAPABILITY

    def synchronize(self) -> None:
        """Wait for everything that was launched."""
        self.call("cuCtxSynchronize")

    def allocate(self, num_bytes: int) -> int:
        """Return the address of new memory of the GPU, on a 256-byte boundary at least."""
        return int(self._get(_ADDRESS, "cuMemAlloc_v2", max(1, num_bytes)))

    def free(self, address: int) -> None:
        """Free memory of the GPU."""
        self.call("cuMemFree_v2", address)

    def upload(self, address: int, array: Any) -> None:
        """Copy a contiguous NumPy array to the GPU."""
        self.call("cuMemcpyHtoD_v2", address, array.ctypes.data, array.nbytes)

    def download(self, array: Any, address: int) -> None:
        """Fill a contiguous NumPy array from the GPU; waits for what was launched."""
        self.call("cuMemcpyDtoH_v2", array.ctypes.data, address, array.nbytes)

    def copy(self, to: int, address: int, num_bytes: int) -> None:
        """Copy within the GPU."""
        self.call("cuMemcpyDtoD_v2", to, address, num_bytes)

    def load(self, image: bytes) -> GpuModule:
        """Load machine code and return its module.

        Raises
        ------
        GpuError
            It is for another GPU or a newer driver.
        """
        return GpuModule(self, self._get(_P, "cuModuleLoadData", image))

    def tensor_map(self, one: TensorMap, address: int) -> Any:
        """Return a tensor map of the tensor at an address, as a kernel takes it by value."""
        area = (ctypes.c_char * (_MAP_BYTES + _MAP_ALIGNMENT))()
        made = (ctypes.c_char * _MAP_BYTES).from_buffer(area, -ctypes.addressof(area) % _MAP_ALIGNMENT)
        self.call("cuTensorMapEncodeTiled", made, *map_arguments(one, address))
        return made

    def stream(self) -> Stream:
        """Return a new stream, which waits for no other."""
        return Stream(self, self._get(_P, "cuStreamCreate", _NON_BLOCKING))

    def event(self) -> int:
        """Return a new event that records the time."""
        return int(self._get(_P, "cuEventCreate", 0))


class GpuModule:
    """Loaded code."""

    def __init__(self, driver: Driver, handle: int) -> None:
        self.driver, self._handle = driver, handle

    def function(
        self,
        name: str,
        shared_bytes: int = 0,
        overlaps: bool = False,
        cluster: int = 1,
        persistent: bool = False,
    ) -> GpuFunction:
        """Return a function by name; each launch asks for so much shared memory a block.

        Parameters
        ----------
        overlaps : bool
            Whether its launches may begin while the one before in the stream ends, where the GPU can that.
        cluster : int
            Blocks of a cluster, neighbours in x.
        persistent : bool
            Whether a launch has no more blocks in x than the GPU runs at a time.
        """
        handle = self.driver._get(_P, "cuModuleGetFunction", self._handle, name.encode())
        if shared_bytes > _STATIC_SHARED_BYTES:
            self.driver.call("cuFuncSetAttribute", handle, _DYNAMIC_SHARED, shared_bytes)
        overlaps = overlaps and self.driver.can_overlap
        return GpuFunction(self.driver, handle, shared_bytes, overlaps, cluster, persistent)

    def unload(self) -> None:
        """Free its memory."""
        self.driver.call("cuModuleUnload", self._handle)


class GpuFunction:
    """A function that can be launched."""

    def __init__(
        self,
        driver: Driver,
        handle: int,
        shared_bytes: int,
        overlaps: bool = False,
        cluster: int = 1,
        persistent: bool = False,
    ) -> None:
        self._driver, self._handle, self._shared_bytes = driver, handle, shared_bytes
        self._cluster, self._persistent = cluster, persistent
        self._attribute = None
        if overlaps:
            self._attribute = _Attribute(_MAY_OVERLAP, 0, (1, 0, 0))
        if cluster > 1:
            self._attribute = _Attribute(_CLUSTER, 0, (cluster, 1, 1))

    def facts(self) -> dict[str, int]:
        """Return registers and stack of a thread, as the driver has them."""
        numbers = {"registers": _REGISTERS, "stack_bytes": _STACK_BYTES}
        get = self._driver._get
        return {n: int(get(_I, "cuFuncGetAttribute", number, self._handle)) for n, number in numbers.items()}

    def resident_blocks(self, threads: int) -> int:
        """Return how many blocks one multiprocessor holds at a time, as the driver has it."""
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return int(self._driver._get(_I, name, self._handle, threads, self._shared_bytes))

    def blocks_at_a_time(self, threads: int) -> int:
        """Return how many blocks the GPU that is in use runs at a time, in whole clusters."""
        get = self._driver._get
        if self._cluster == 1:
            num_sms = get(_I, "cuDeviceGetAttribute", _NUM_SMS, get(_I, "cuCtxGetDevice"))
            return self.resident_blocks(threads) * int(num_sms)
        config = self._config((self._cluster, 1, 1, threads, 1, 1, self._shared_bytes), None)
        count = get(_I, "cuOccupancyMaxActiveClusters", self._handle, ctypes.byref(config))
        return int(count) * self._cluster

    def _config(self, shape: tuple[int, ...], stream: int | None) -> _Config:
        assert self._attribute is not None
        return _Config(*shape, stream, ctypes.pointer(self._attribute), 1)

    def bind(
        self,
        grid: Sequence[int],
        threads: int,
        values: Sequence[int],
        maps: Sequence[tuple[TensorMap, int]] = (),
    ) -> Callable[[Stream], None]:
        """Return a launch with its arguments; it is called with the stream.

        Parameters
        ----------
        grid : sequence of int
            Blocks in x and y; of a persistent grid one for each tile.
        values : sequence of int
            64-bit numbers and addresses.
        maps : sequence of (TensorMap, int)
            Tensor maps that the function takes by value behind them, each of the tensor at an address.
        """
        kept: list[Any] = [ctypes.c_int64(value) for value in values]
        kept += [self._driver.tensor_map(one, address) for one, address in maps]
        addresses = (_P * len(kept))(*(ctypes.addressof(value) for value in kept))
        x, y = grid
        if self._persistent:
            x = min(x, self.blocks_at_a_time(threads))
        shape = (x, y, 1, threads, 1, 1, self._shared_bytes)

        def launch_with_attribute(stream: Stream, _kept: Any = kept) -> None:
            config = self._config(shape, stream.handle)
            self._driver.call("cuLaunchKernelEx", ctypes.byref(config), self._handle, addresses, None)

        def launch(stream: Stream, _kept: Any = kept) -> None:
            self._driver.call("cuLaunchKernel", self._handle, *shape, stream.handle, addresses, None)

        return launch if self._attribute is None else launch_with_attribute


class Stream:
    """A queue of work of one GPU."""

    def __init__(self, driver: Driver, handle: int) -> None:
        self.handle, self._driver = handle, driver

    def synchronize(self) -> None:
        """Wait for its work."""
        self._driver.call("cuStreamSynchronize", self.handle)

    def record(self, event: int) -> None:
        """Record in an event the time at which all work before it is done."""
        self._driver.call("cuEventRecord", event, self.handle)

    def seconds_between(self, start: int, end: int) -> float:
        """Wait for the second of two events and return the seconds between them."""
        self._driver.call("cuEventSynchronize", end)
        return float(self._driver._get(_F, "cuEventElapsedTime", start, end)) / 1e3

    def capture(self, launch: Callable[[], None]) -> CapturedGraph:
        """Return what `launch` puts in this stream as a graph; none of it runs."""
        graph = _P()
        self._driver.call("cuStreamBeginCapture_v2", self.handle, _RELAXED)
        try:
            launch()
        finally:
            self._driver.call("cuStreamEndCapture", self.handle, ctypes.byref(graph))
        return CapturedGraph(self, int(graph.value or 0))


class CapturedGraph:
    """Launches that are given to the GPU at once."""

    def __init__(self, stream: Stream, handle: int) -> None:
        self._stream, self._driver, self._handle = stream, stream._driver, handle
        self._ready = self._driver._get(_P, "cuGraphInstantiateWithFlags", handle, 0)

    def replay(self) -> None:
        """Launch all of it."""
        self._driver.call("cuGraphLaunch", self._ready, self._stream.handle)

    def close(self) -> None:
        """Free its memory."""
        self._driver.call("cuGraphExecDestroy", self._ready)
        self._driver.call("cuGraphDestroy", self._handle)
