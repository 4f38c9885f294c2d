"""A GPU as a device that is measured on."""

from __future__ import annotations

from dietcode.measure.engine import Device
from dietcode.measure.gpu import Gpu
from dietcode.measure.gpu_worker import GpuWorker

_L2_BYTES = 64 << 20  # as the GPU benchmark has it, for all GPUs alike


def gpu_device(gpu: Gpu, place: str = "") -> Device:
    """The GPU in the machine where it was found.

    Parameters
    ----------
    place : str, optional
        As `Device` has it; by default its own in this machine.

    Raises
    ------
    TargetError
        No code is generated for its architecture.
    """
    record = gpu.record
    assert gpu.target is not None, "its record would have been refused"
    worker = GpuWorker(gpu.index, max(_L2_BYTES, gpu.l2_bytes))
    own = f"measure-gpu-{''.join(c for c in gpu.place if c.isalnum())}"
    return Device(gpu.target, record, worker, place=place or own)
