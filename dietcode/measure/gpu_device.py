"""GPUs as devices of an engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dietcode.errors import TargetError
from dietcode.measure.engine import Device
from dietcode.measure.gpu import Gpu, list_gpus, need_gpu
from dietcode.measure.gpu_worker import GpuWorker
from dietcode.target.cuda import ARCHS, CudaTarget, resolve_cuda
from dietcode.target.nvrtc import missing_packages
from dietcode.workload.target_spec import TargetSpec

_L2_BYTES = 64 << 20  # as the GPU benchmark has it, for all GPUs alike


def gpu_device(gpu: Gpu, slot: str = "") -> Device:
    """Return a GPU as a device of the machine where it was found.

    Parameters
    ----------
    slot : str, optional
        As `Device` has it; by default that of the GPU in this machine.

    Raises
    ------
    TargetError
        No code is generated for its architecture.
    """
    record = gpu.record
    assert gpu.target is not None, "its record would have been refused"
    worker = GpuWorker(gpu.index, max(_L2_BYTES, gpu.l2_bytes))
    own = f"measure-gpu-{''.join(c for c in gpu.bus_id if c.isalnum())}"
    return Device(gpu.target, record, worker, slot=slot or own)


class GpuDevices:
    """`dietcode.measure.device_kinds.DeviceKind` of GPUs, each described by its `Gpu`."""

    kind: ClassVar[str] = "cuda"
    prefix: ClassVar[str] = "dietcode-measures-gpu:"
    from_json = staticmethod(Gpu.from_json)

    @property
    def can_build(self) -> bool:
        """As `DeviceKind` has it: CUDA's compiler is installed."""
        return not missing_packages()

    def target(self, spec: TargetSpec) -> CudaTarget:
        """As `DeviceKind` has it."""
        return resolve_cuda(spec)

    def here(self) -> list[Gpu]:
        """As `DeviceKind` has it."""
        return [gpu for gpu in list_gpus() if self.is_usable(gpu)] if self.can_build else []

    def is_usable(self, described: Gpu) -> bool:
        """As `DeviceKind` has it: code is generated for its architecture."""
        return described.target is not None

    def all_of(self, found: Sequence[tuple[str, Gpu]]) -> list[Device]:
        """As `DeviceKind` has it: for each architecture the first GPU of its compute capability."""
        devices = []
        for target in map(CudaTarget, ARCHS):
            fitting = ((slot, gpu) for slot, gpu in found if gpu.capability == target.number)
            for slot, gpu in itertools.islice(fitting, 1):
                devices.append(gpu_device(replace(gpu, target=target), slot))
        return devices

    def own(self, spec: TargetSpec) -> Device:
        """As `DeviceKind` has it."""
        return gpu_device(need_gpu(resolve_cuda(spec)))

    def choose(self, spec: TargetSpec, found: Sequence[tuple[str, Gpu]], cluster: str, start: str) -> Device:
        """As `DeviceKind` has it: the first one of the target's compute capability."""
        target = resolve_cuda(spec)
        for slot, gpu in found:
            if gpu.capability == target.number:
                return gpu_device(replace(gpu, target=target), slot)
        known = ", ".join(str(gpu) for _, gpu in found) or "none"
        raise TargetError(
            f"no GPU of {target.arch} in {cluster} (found: {known}); start a machine with one there: {start}"
        )
