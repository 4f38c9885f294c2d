"""CUDA targets: ``{kind: cuda, arch: sm_90}`` and what a multiprocessor of each architecture holds.

The limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and
of NVIDIA's occupancy calculator. How many multiprocessors a GPU has is not part of its architecture: it
stands in the record of the device.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, replace
from typing import Any

from dietcode.errors import TargetError
from dietcode.target.base import target_of_tag
from dietcode.target.multiprocessor import KIB, WARP, Multiprocessor
from dietcode.workload.target_spec import TargetSpec

_AMPERE = ("float16", "bfloat16", "tfloat32", "int8")
_HOPPER = Multiprocessor(2048, 32, 228 * KIB, 227 * KIB, (*_AMPERE, "float64", "float8"))
ARCHS: dict[str, Multiprocessor] = {
    "sm_75": Multiprocessor(
        1024, 16, 64 * KIB, 64 * KIB, ("float16", "int8"), reserved_bytes=0, shared_unit=256
    ),
    "sm_80": Multiprocessor(2048, 32, 164 * KIB, 163 * KIB, (*_AMPERE, "float64")),
    "sm_86": Multiprocessor(1536, 16, 100 * KIB, 99 * KIB, _AMPERE),
    "sm_89": Multiprocessor(1536, 24, 100 * KIB, 99 * KIB, (*_AMPERE, "float8")),
    "sm_90": _HOPPER,
    "sm_90a": replace(_HOPPER, has_wgmma=True),
    "sm_100": _HOPPER,
}
"""Architectures that code is generated for; ``sm_90a`` is ``sm_90`` with more, which later ones lack."""


@dataclass(frozen=True)
class CudaTarget:
    """A resolved CUDA target.

    Attributes
    ----------
    arch : str
        One of `ARCHS`.

    Raises
    ------
    TargetError
        The architecture is not one of them.
    """

    arch: str
    kind: str = "cuda"

    def __post_init__(self) -> None:
        if self.arch not in ARCHS:
            near = difflib.get_close_matches(self.arch, ARCHS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TargetError(f"target.arch: given {self.arch!r}; allowed: {', '.join(ARCHS)}{hint}")

    @property
    def sm(self) -> Multiprocessor:
        """Limits of one multiprocessor."""
        return ARCHS[self.arch]

    @property
    def label(self) -> str:
        """The architecture."""
        return self.arch

    @property
    def number(self) -> int:
        """The compute capability without its point: 90 for ``sm_90a``."""
        return int("".join(c for c in self.arch if c.isdigit()))

    def tvm_target(self) -> Any:
        """Return the same target as TVM takes it, with the limits that TVM would ask a GPU for."""
        import tvm

        return tvm.target.Target(
            {
                "kind": "cuda",
                "arch": self.arch,
                "max_threads_per_block": self.sm.max_threads_per_block,
                "max_shared_memory_per_block": self.sm.block_shared_bytes,
                "registers_per_block": self.sm.num_registers,
                "thread_warp_size": WARP,
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return its identity as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CudaTarget:
        """The inverse of `to_json`.

        Raises
        ------
        ValueError
            It is not a target, or its architecture is unknown.
        """
        if set(data) != {"kind", "arch"} or data["kind"] != "cuda" or data["arch"] not in ARCHS:
            raise ValueError(f"no CUDA target: {str(data)[:120]}")
        return cls(data["arch"])


def resolve_cuda(spec: TargetSpec) -> CudaTarget:
    """Resolve a spec's target of kind cuda, or a TVM tag of that kind.

    Raises
    ------
    TargetError
        The architecture is unknown, or the tag is not of kind cuda.
    """
    if spec.tag is None:
        if spec.kind != "cuda" or spec.arch is None:
            raise TargetError(f"target.kind: {spec.kind!r}; allowed here: cuda, with its arch")
        return CudaTarget(spec.arch)
    target = target_of_tag(spec.tag)
    if str(target.kind.name) != "cuda":
        raise TargetError(f"target: {spec.tag!r} is of kind {target.kind.name}, not cuda")
    return CudaTarget(str(dict(target.attrs)["arch"]))
