"""Architectures, their limits, and the occupancy that follows."""

from __future__ import annotations

import pytest

from dietcode.errors import TargetError
from dietcode.target.cuda import ARCHS, CudaTarget, resolve_cuda
from dietcode.workload.target_spec import TargetSpec


@pytest.mark.parametrize("arch", ARCHS)
def test_every_known_architecture_resolves_and_comes_back(arch: str) -> None:
    target = resolve_cuda(TargetSpec(kind="cuda", arch=arch))
    assert target.to_json() == {"kind": "cuda", "arch": arch}
    assert CudaTarget.from_json(target.to_json()) == target
    assert str(target.tvm_target().attrs["arch"]) == arch


def test_an_unknown_architecture_is_told_the_known_ones() -> None:
    with pytest.raises(TargetError) as caught:
        resolve_cuda(TargetSpec(kind="cuda", arch="sm_91"))
    assert "'sm_91'" in str(caught.value)
    assert all(arch in str(caught.value) for arch in ARCHS)
    assert "did you mean sm_90?" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [{}, {"kind": "cuda"}, {"kind": "llvm", "arch": "sm_90"}, {"kind": "cuda", "arch": "sm_10"}]
)
def test_no_target(data: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no CUDA target"):
        CudaTarget.from_json(data)


def test_a_tag_of_tvm_is_taken() -> None:
    assert resolve_cuda(TargetSpec(tag="nvidia/nvidia-a100")).arch == "sm_80"
    with pytest.raises(TargetError, match="no TVM target tag"):
        resolve_cuda(TargetSpec(tag="nvidia/nothing"))


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "expected"),
    [
        # As NVIDIA's occupancy calculator has them.
        ("sm_90", 256, 32, 0, 8),  # threads
        ("sm_90", 32, 16, 0, 32),  # blocks
        ("sm_90", 256, 128, 0, 2),  # registers: 8 warps of 4096
        ("sm_90", 256, 130, 0, 1),  # rounded up to 136: 15 warps, in fours 12
        ("sm_90", 128, 64, 100 << 10, 2),  # shared memory, one KiB of each block the system's
        ("sm_90", 1024, 64, 0, 1),
        ("sm_90", 1024, 65, 0, 0),  # 32 warps of 72 registers are more than there are
        ("sm_90", 2048, 16, 0, 0),
        ("sm_90", 256, 256, 0, 0),
        ("sm_90", 256, 32, 228 << 10, 0),
        ("sm_75", 256, 64, 33 << 10, 1),
        ("sm_75", 256, 64, 32 << 10, 2),  # nothing is reserved there
        ("sm_86", 256, 32, 0, 6),
        ("sm_89", 64, 32, 0, 24),
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, expected: int) -> None:
    assert ARCHS[arch].resident_blocks(threads, registers, shared) == expected
