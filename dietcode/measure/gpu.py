"""GPUs of this machine, as the driver lists them: nothing is launched and no memory is allocated."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from dietcode.errors import TargetError
from dietcode.measure.cuda_driver import NO_DEVICE, Driver, GpuError
from dietcode.target.cuda import ARCHS, CudaTarget
from dietcode.target.nvrtc import missing_packages, nvrtc_version

_NUM_SMS, _MAJOR, _MINOR, _L2_BYTES = 16, 75, 76, 38  # CU_DEVICE_ATTRIBUTE_…
_EMULATED = "emulated"  # the name that a driver has to give where no device computes


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes
    ----------
    index : int
        Its number in the driver, which counts those of CUDA_VISIBLE_DEVICES.
    capability : int
        86 for 8.6.
    l2_bytes : int
        Size of its cache.
    bus_id : str
        As the machine numbers its devices: two processes know the same GPU by it.
    target : CudaTarget or None
        Target of what is measured on it; None where this version generates no code for its architecture.
    """

    index: int
    name: str
    num_sms: int
    capability: int
    l2_bytes: int
    bus_id: str
    target: CudaTarget | None

    @property
    def is_synthetic(self) -> bool:
        """Whether its driver emulates a device; nothing is published from its records."""
        return self.name.startswith(_EMULATED)

    @property
    def id(self) -> str:
        """Digest of name, number of multiprocessors and target."""
        return str(self.record["id"])

    @property
    def record(self) -> dict[str, Any]:
        """The device as the header of its records names it, see `dietcode.measure.formats.cuda`.

        Raises
        ------
        TargetError
            No code is generated for its architecture.
        """
        if self.target is None:
            raise TargetError(f"{self}; allowed: {', '.join(ARCHS)}")
        facts = {"name": self.name, "num_sms": self.num_sms, "target": self.target.to_json()}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        return facts | {"id": digest, "synthetic": self.is_synthetic}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Gpu:
        """The inverse of `to_json`.

        Raises
        ------
        ValueError, TypeError
            A field is missing, unknown or malformed.
        """
        target = data.get("target")
        return cls(**data | {"target": None if target is None else CudaTarget.from_json(target)})

    def __str__(self) -> str:
        return f"{self.name} (sm_{self.capability})"


def list_gpus() -> list[Gpu]:
    """Return the GPUs that this process may use, in the driver's order; none without a driver or a device.

    Raises
    ------
    TargetError
        The driver cannot be used, or is too old for the machine code that is compiled here.
    """
    try:
        driver = Driver()
        _check_version(driver.version)
        return [_gpu(driver, index) for index in range(driver.num_devices)]
    except OSError:
        return []
    except GpuError as error:
        if error.status == NO_DEVICE:
            return []
        raise TargetError(f"the GPU cannot be used: {error}") from error


def find_gpu(target: CudaTarget | None = None) -> Gpu | None:
    """Return the first GPU that can be measured on, or None.

    Parameters
    ----------
    target : CudaTarget, optional
        The target that the GPU is to have; its compute capability must be the same.

    Raises
    ------
    TargetError
        As for `list_gpus`.
    """
    for gpu in list_gpus():
        if target is None and gpu.target is not None:
            return gpu
        if target is not None and gpu.capability == target.number:
            return replace(gpu, target=target)
    return None


def need_gpu(target: CudaTarget) -> Gpu:
    """Return the GPU to measure a target on.

    Raises
    ------
    TargetError
        There is no such GPU here; the message lists those that there are.
    """
    gpu = find_gpu(target)
    if gpu is None:
        found = ", ".join(map(str, list_gpus())) or "none"
        raise TargetError(
            f"no GPU of {target.arch} here (found: {found}); run this on a machine with one, or pass what "
            "one measured by --records FILE"
        )
    return gpu


def _check_version(version: int) -> None:
    if missing_packages():
        return
    needed = int(nvrtc_version().partition(".")[0])
    if version < 1000 * needed:
        raise TargetError(
            f"the NVIDIA driver is for CUDA {version // 1000}.{version % 1000 // 10}; what is compiled here "
            f"needs one for {needed}.0 or newer"
        )


def _gpu(driver: Driver, index: int) -> Gpu:
    capability = 10 * driver.attribute(index, _MAJOR) + driver.attribute(index, _MINOR)
    # Of sm_90 and sm_90a the last, which has more instructions.
    archs = [arch for arch in ARCHS if CudaTarget(arch).number == capability]
    return Gpu(
        index,
        driver.name(index),
        driver.attribute(index, _NUM_SMS),
        capability,
        driver.attribute(index, _L2_BYTES),
        driver.bus_id(index),
        CudaTarget(archs[-1]) if archs else None,
    )
