"""`dietcode.target.cpu`: what a spec asks for becomes a processor with limits."""

from __future__ import annotations

import json

import pytest
import tvm

from dietcode.errors import TargetError
from dietcode.target import cpu
from dietcode.target.cpu import CpuTarget, device_record, resolve_target
from dietcode.workload.spec import TargetSpec

HASWELL = TargetSpec(kind="llvm", mcpu="haswell", num_cores=4)
SKYLAKE = TargetSpec(kind="llvm", mcpu="skylake-avx512", num_cores=4)


def test_the_host_is_taken_where_no_processor_is_given() -> None:
    target = resolve_target(TargetSpec(kind="llvm"))
    assert target.mcpu == tvm.get_global_func("target.llvm_get_system_cpu")()
    assert target.num_cores == cpu.available_cores()
    assert target.runs_here
    assert 4 << 10 <= target.l1_bytes < target.l2_bytes


def test_avx2_limits() -> None:
    target = resolve_target(HASWELL)
    assert (target.vector_bytes, target.num_vector_registers, target.lanes()) == (32, 16, 8)
    assert target.lanes(8) == 4
    assert {"avx2", "fma"} <= set(target.features)
    assert not any(name.startswith("avx512") for name in target.features)


def test_avx512_limits() -> None:
    target = resolve_target(SKYLAKE)
    assert (target.vector_bytes, target.num_vector_registers, target.lanes()) == (64, 32, 16)
    assert "avx512f" in target.features


def test_plain_sse_limits() -> None:
    target = resolve_target(TargetSpec(kind="llvm", mcpu="x86-64"))
    assert (target.vector_bytes, target.num_vector_registers) == (16, 16)


def test_attributes_switch_features() -> None:
    target = resolve_target(TargetSpec(kind="llvm", mcpu="skylake-avx512", mattr=("-avx512f",)))
    assert "avx512f" not in target.features
    assert target.vector_bytes == 32
    assert target.mattr == ("-avx512f",)
    assert list(target.tvm_target().attrs["mattr"]) == ["-avx512f"]


def test_unknown_processor_is_refused() -> None:
    with pytest.raises(TargetError, match=r"target\.mcpu: 'pentium-9000' is unknown"):
        resolve_target(TargetSpec(kind="llvm", mcpu="pentium-9000"))


def test_cuda_is_refused() -> None:
    with pytest.raises(TargetError, match=r"target\.kind: 'cuda' cannot be built"):
        resolve_target(TargetSpec(kind="cuda", arch="sm_90"))


def test_a_tag_names_processor_and_cores() -> None:
    target = resolve_target(TargetSpec(tag="aws/cpu/c5.2xlarge"))
    assert (target.mcpu, target.num_cores, target.vector_bytes) == ("skylake-avx512", 4, 64)


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("no/such-tag", "is no TVM target tag"),
        ("nvidia/nvidia-a100", "is of kind cuda"),
        ("arm/rasp4b", "cortex-a72"),
    ],
)
def test_other_tags_are_refused(tag: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        resolve_target(TargetSpec(tag=tag))
    assert "\n" not in str(caught.value)


def test_features_that_the_virtual_machine_hides_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = resolve_target(TargetSpec(kind="llvm"))
    # AVX alone has vectors as wide as AVX2.
    hidden = {"avx512f", "avx512vl", "avx2", "avx"} & set(usual.features)
    if not hidden:
        pytest.skip("this CPU has no AVX to hide")
    monkeypatch.setattr(cpu, "missing_features", lambda names: [n for n in names if n in hidden])
    target = resolve_target(TargetSpec(kind="llvm"))
    assert not hidden & set(target.features)
    assert {f"-{name}" for name in hidden} <= set(target.mattr)
    assert target.vector_bytes < usual.vector_bytes
    emitted = cpu._features(target.mcpu, list(target.mattr))
    assert not hidden & set(emitted), "LLVM may still emit what was switched off"


def test_features_of_a_named_processor_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "missing_features", list)
    target = resolve_target(SKYLAKE)
    assert "avx512f" in target.features
    assert not target.runs_here


def test_json_round_trip() -> None:
    target = resolve_target(HASWELL)
    assert CpuTarget.from_json(json.loads(json.dumps(target.to_json()))) == target


def test_a_device_is_named_by_cpu_and_target() -> None:
    one, other = resolve_target(HASWELL), resolve_target(SKYLAKE)
    assert device_record(one) == device_record(one)
    assert device_record(one)["id"] != device_record(other)["id"]
    assert device_record(one)["target"]["mcpu"] == "haswell"
