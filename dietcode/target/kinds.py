"""What a kind of target means to a server and to people, from plain data and without a compiler.

A new kind gets an entry in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.errors import LibraryError
from dietcode.target.cuda import ARCHS, CudaTarget
from dietcode.target.embedded import check_embedded
from dietcode.workload.text import clip

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class TargetKind:
    """One kind of target.

    Attributes
    ----------
    name : str
        As ``target.kind`` has it.
    noun : str
        What such a device is, with its article.
    facts : callable
        From a device's target what the search knows of the hardware, each fact with its name.
    names_architecture : bool
        Whether a target names an architecture rather than one machine: any device of it may measure a job,
        and a library may be built from records of one, without a device.
    fits : callable
        Whether what a device with the first target measures is for the second one.
    check_library : callable
        Refuses a library that must not be published, by its code, manifest and report.
    torch_device : str or None
        Where PyTorch has the tensors of a call; None for the host's memory.
    not_compared : str or None
        Why a finished library is not measured beside a vendor's kernels; None where it is.
    """

    name: str
    noun: str
    facts: Callable[[Plain], list[tuple[str, str]]]
    names_architecture: bool = False
    fits: Callable[[Plain, Plain], bool] = lambda device, target: device == target
    check_library: Callable[[bytes, Plain, Plain], None] = lambda code, manifest, report: None
    torch_device: str | None = None
    not_compared: str | None = None


def kind_of_target(target: Plain) -> TargetKind:
    """Return the kind of a target; that of CPUs where it names none."""
    return KINDS.get(str(target.get("kind")), CPU)


def label_of(target: Plain) -> str:
    """Return a processor or an architecture and the number of its cores; what a spec says if that is all."""
    names = (target.get(name) for name in ("mcpu", "arch", "tag", "kind"))
    label = str(next(filter(None, names), "unknown"))
    for name, what in (("num_cores", "core"), ("num_sms", "SM")):
        count = target.get(name)
        if count is not None:
            label += f", {count} {what}{'' if count == 1 else 's'}"
    return label


def archs_of(requires: Plain) -> tuple[str, ...]:
    """Return the architectures that a library holds machine code for, by what its manifest requires."""
    return tuple(requires.get("cuda", {}).get("archs", ()))


def requirements_of(requires: Plain) -> list[tuple[str, str]]:
    """Return what a manifest requires of a machine, each thing with its name."""
    found = []
    if requires.get("machine"):
        found.append(("machine", f"{requires.get('system', '')}, {requires['machine']}"))
    if requires.get("cuda"):
        cuda = requires["cuda"]
        code = f"machine code for {', '.join(cuda['archs'])}; newer ones from PTX of {cuda['ptx']}"
        found.append(("GPU", f"{code}; a driver for CUDA {cuda['driver']} or newer"))
    if requires.get("cpu_features"):
        found.append(("CPU features", " ".join(requires["cpu_features"])))
    return found


def _cpu_facts(target: Plain) -> list[tuple[str, str]]:
    width, registers = target.get("vector_bytes"), target.get("num_vector_registers")
    found = {
        "cores": target.get("num_cores"),
        "vector": None if width is None else f"{registers} registers of {8 * width} bits",
        "L1 data": _cache(target.get("l1_bytes")),
        "L2": _cache(target.get("l2_bytes")),
    }
    return [(name, str(value)) for name, value in found.items() if value is not None]


def _cache(num_bytes: int | None) -> str | None:
    if num_bytes is None:
        return None
    size = f"{num_bytes / 1024:g} KiB" if num_bytes < 1 << 20 else f"{num_bytes / (1 << 20):g} MiB"
    return f"{size} a core"


def _gpu_facts(target: Plain) -> list[tuple[str, str]]:
    sm = ARCHS.get(str(target.get("arch")))
    if sm is None:
        return []
    num_sms = target.get("num_sms")
    return [
        *([] if num_sms is None else [("multiprocessors (SMs)", str(num_sms))]),
        ("threads of an SM", str(sm.max_threads)),
        ("registers of an SM", str(sm.num_registers)),
        ("shared memory of an SM", f"{sm.shared_bytes >> 10} KiB"),
        ("tensor cores multiply", ", ".join(sm.tensor_dtypes)),
    ]


def _is_same_capability(device: Plain, target: Plain) -> bool:
    measured, asked = str(device.get("arch")), str(target.get("arch"))
    if measured not in ARCHS or asked not in ARCHS:
        return False
    return CudaTarget(measured).number == CudaTarget(asked).number


def _check_gpu_library(code: bytes, manifest: Plain, report: Plain) -> None:
    device = report["device"]
    if device["synthetic"] is not False:
        raise LibraryError(
            f"its records are synthetic ({clip(device['name'])}): no device measured them, and nothing is "
            "published from such; measure on a GPU"
        )
    check_embedded(code, manifest["requires"]["cuda"]["archs"], report["machine_code"])


CPU = TargetKind("llvm", "a CPU", _cpu_facts)
GPU = TargetKind(
    "cuda",
    "a GPU",
    _gpu_facts,
    names_architecture=True,
    fits=_is_same_capability,
    check_library=_check_gpu_library,
    torch_device="cuda",
    not_compared="a library for a GPU is compared on one, by benchmarks/gpu",
)
KINDS: dict[str, TargetKind] = {kind.name: kind for kind in (CPU, GPU)}
