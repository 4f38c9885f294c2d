"""CUDA targets: ``{kind: cuda, arch: sm_90}`` and what a multiprocessor of each architecture holds.

The limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and
of NVIDIA's occupancy calculator. How many multiprocessors a GPU has is no matter of its architecture: it
stands in the record of the device that measured.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import Any

from dietcode.errors import TargetError
from dietcode.workload.spec import Spec, TargetSpec

WARP = 32
_KIB = 1 << 10


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor (SM) of an architecture holds.

    Attributes
    ----------
    max_threads, max_blocks : int
        Resident at a time.
    num_registers : int
        32-bit registers.
    shared_bytes : int
        Shared memory for all resident blocks.
    block_shared_bytes : int
        The most that one block may take, which beyond 48 KiB must be asked for when a kernel is loaded.
    reserved_bytes, shared_unit : int
        Shared memory that the system takes for each block, and the unit that it is given in, in bytes.
    fp32_lanes : int
        float32 multiply-adds begun in a clock.
    tensor_dtypes : tuple of str
        What its tensor cores multiply with ``mma.sync``.
    """

    max_threads: int
    max_blocks: int
    shared_bytes: int
    block_shared_bytes: int
    fp32_lanes: int
    tensor_dtypes: tuple[str, ...]
    reserved_bytes: int = 1 * _KIB
    shared_unit: int = 128
    num_registers: int = 64 * _KIB
    max_registers_per_thread: int = 255
    register_unit: int = 256
    max_threads_per_block: int = 1024

    @property
    def max_warps(self) -> int:
        """Resident warps."""
        return self.max_threads // WARP

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Blocks of one kernel that are resident at a time; 0 where not even one is.

        Parameters
        ----------
        threads : int
            Of a block.
        registers : int
            Of a thread, at least 1.
        shared_bytes : int
            Of a block, what the system reserves left out.
        """
        too_many = threads > self.max_threads_per_block or registers > self.max_registers_per_thread
        if threads < 1 or too_many or shared_bytes > self.block_shared_bytes:
            return 0
        warps = -(-threads // WARP)
        # Registers are given to warps, in units, and warps to the four parts of a multiprocessor in turn.
        of_warp = -(-max(1, registers) * WARP // self.register_unit) * self.register_unit
        by_registers = self.num_registers // of_warp // 4 * 4 // warps
        taken = -(-(shared_bytes + self.reserved_bytes) // self.shared_unit) * self.shared_unit
        by_shared = self.shared_bytes // taken if taken else self.max_blocks
        return min(self.max_blocks, self.max_warps // warps, by_registers, by_shared)


_AMPERE = ("float16", "bfloat16", "tfloat32", "int8")
_HOPPER = Multiprocessor(2048, 32, 228 * _KIB, 227 * _KIB, 128, (*_AMPERE, "float64", "float8"))
ARCHS: dict[str, Multiprocessor] = {
    "sm_75": Multiprocessor(
        1024, 16, 64 * _KIB, 64 * _KIB, 64, ("float16", "int8"), reserved_bytes=0, shared_unit=256
    ),
    "sm_80": Multiprocessor(2048, 32, 164 * _KIB, 163 * _KIB, 64, (*_AMPERE, "float64")),
    "sm_86": Multiprocessor(1536, 16, 100 * _KIB, 99 * _KIB, 128, _AMPERE),
    "sm_89": Multiprocessor(1536, 24, 100 * _KIB, 99 * _KIB, 128, (*_AMPERE, "float8")),
    "sm_90": _HOPPER,
    "sm_90a": _HOPPER,
    "sm_100": Multiprocessor(2048, 32, 228 * _KIB, 227 * _KIB, 128, (*_AMPERE, "float64", "float8")),
}
"""What code can be generated for; ``sm_90a`` is ``sm_90`` with instructions that no later one keeps."""


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
        The architecture is none of them.
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

    def runs_on(self, capability: int) -> bool:
        """Whether machine code of this target runs on a GPU of a compute capability, 86 for 8.6.

        Within a major version machine code runs on later minor ones; that of ``sm_90a`` on 9.0 alone.
        """
        if not self.arch[-1].isdigit():
            return capability == self.number
        return capability // 10 == self.number // 10 and capability >= self.number

    def tvm_target(self) -> Any:
        """The same target as TVM takes it; what it would ask a GPU for is told."""
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
        """Plain data: identity of the target."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CudaTarget:
        """The inverse of `to_json`.

        Raises
        ------
        ValueError
            It is none, or of an unknown architecture.
        """
        if set(data) != {"kind", "arch"} or data["kind"] != "cuda" or data["arch"] not in ARCHS:
            raise ValueError(f"no CUDA target: {str(data)[:120]}")
        return cls(data["arch"])


def resolve_cuda(spec: TargetSpec) -> CudaTarget:
    """Resolve a spec's target of kind cuda, or a TVM tag of that kind.

    Raises
    ------
    TargetError
        The architecture is unknown, or the tag is none of kind cuda.
    """
    if spec.tag is None:
        if spec.kind != "cuda" or spec.arch is None:
            raise TargetError(f"target.kind: {spec.kind!r}; allowed here: cuda, with its arch")
        return CudaTarget(spec.arch)
    import tvm

    try:
        target = tvm.target.Target(spec.tag)
    except Exception as error:
        raise TargetError(f"target: {spec.tag!r} is no TVM target tag") from error
    if str(target.kind.name) != "cuda":
        raise TargetError(f"target: {spec.tag!r} is of kind {target.kind.name}, not cuda")
    return CudaTarget(str(dict(target.attrs)["arch"]))


def is_cuda(spec: Spec) -> bool:
    """Whether a spec asks for CUDA, by its kind or by a tag of that kind."""
    if spec.target.tag is None:
        return spec.target.kind == "cuda"
    try:
        resolve_cuda(spec.target)
    except TargetError:
        return False
    return True
