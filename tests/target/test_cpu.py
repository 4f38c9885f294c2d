"""`dietcode.target.cpu`: what a spec asks for becomes a processor with limits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tvm

from dietcode.errors import TargetError
from dietcode.measure.store import FileKeeper
from dietcode.runtime import cpu as runtime_cpu
from dietcode.target import cpu
from dietcode.target.cpu import CpuTarget, Host, device_record, resolve_target
from dietcode.workload.spec import TargetSpec

LLVM = TargetSpec(kind="llvm")
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


# What /proc/cpuinfo lists on a Xeon with AMX, whatever model the hypervisor reports.
_AMX_FLAGS = """
    fpu sse sse2 ht pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt aes avx f16c abm bmi1 avx2 bmi2
    avx512f avx512dq adx avx512ifma avx512cd sha_ni avx512bw avx512vl avx_vnni avx512_bf16 avx512vbmi
    avx512_vbmi2 gfni vaes vpclmulqdq avx512_vnni avx512_bitalg avx512_vpopcntdq avx512_fp16 amx_tile amx_bf16
    amx_int8
"""
_AFTER_CASCADE_LAKE = """
    avx512_fp16 amx_tile amx_bf16 amx_int8 avx_vnni avx512_bf16 avx512ifma avx512vbmi avx512_vbmi2 gfni vaes
    vpclmulqdq avx512_bitalg avx512_vpopcntdq
"""
on_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="flags of another instruction set")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Host]:
    """Whatever runs the test says that it is another machine."""

    def become(mcpu: str, lacking: str = "", name: str = "A VM", l2_bytes: int = 2 << 20) -> Host:
        flags = frozenset(f.replace("_", "") for f in {*_AMX_FLAGS.split()} - {*lacking.split()})
        functions = {"target.llvm_get_system_cpu": lambda: mcpu}
        faked = lambda name: functions.get(name) or tvm.get_global_func(name)  # noqa: E731
        monkeypatch.setattr(cpu, "tvm", SimpleNamespace(target=tvm.target, get_global_func=faked))
        for module in (cpu, runtime_cpu):
            monkeypatch.setattr(module, "cpu_flags", lambda: flags)
        monkeypatch.setattr(cpu, "cpu_model", lambda: name)
        monkeypatch.setattr(cpu, "cache_bytes", lambda level, default: l2_bytes)
        return Host.here()

    return become


@on_x86
@pytest.mark.parametrize("mcpu", ["rocketlake", "sapphirerapids", "x86-64", "nocona", "znver5"])
def test_features_follow_from_flags_whatever_the_name(machine: Callable[..., Host], mcpu: str) -> None:
    here = machine(mcpu)
    target = resolve_target(LLVM)
    amx = {"amx-tile", "amx-bf16", "amx-int8"}
    assert {*amx, "avx512bf16", "avx512fp16", "avxvnni", "vaes", "sse3", "lzcnt"} <= set(target.features)
    assert target.features == here.features and not {"sse4a", "avxifma", "amx-fp16"} & set(target.features)
    assert cpu._features(target.mcpu, target.mattr) == list(target.features), "LLVM may emit just these"
    assert list(target.tvm_target().attrs.get("mattr", ())) == list(target.mattr)
    assert not amx & set(target.needed_features) and "avx512fp16" in target.needed_features
    assert target.runs_here and here.refusal(target) is None
    machine(mcpu, lacking="avx512_fp16 amx_tile amx_bf16 amx_int8")
    assert cpu.missing_features(target.needed_features) == ["avx512fp16"]
    assert not target.runs_here
    assert {"avx512bf16", "avx512f"} <= set(resolve_target(LLVM).features)


@on_x86
@pytest.mark.parametrize(
    ("lacking", "mcpu"),
    [("", "emeraldrapids"), (_AFTER_CASCADE_LAKE, "cascadelake")],
)
def test_a_wrong_name_is_not_scheduled_for(machine: Callable[..., Host], lacking: str, mcpu: str) -> None:
    machine("nocona", lacking)
    assert (resolve_target(LLVM).mcpu, resolve_target(LLVM).mattr) == (mcpu, ())


@on_x86
def test_a_device_is_its_features_caches_and_cores(machine: Callable[..., Host], own_cache: Path) -> None:
    def here(spec: TargetSpec = LLVM, **facts: Any) -> dict[str, Any]:
        host = machine(**{"mcpu": "rocketlake"} | facts)
        return device_record(resolve_target(spec, host), host, spec)

    first = here(name="Intel Xeon Processor")
    renamed = here(mcpu="sapphirerapids", name="Intel(R) Xeon(R) Platinum 8481C")
    assert renamed["name"] != first["name"] and renamed["id"] == first["id"]
    line = {"kind": "fixed_bytes", "bytes": 777}
    FileKeeper().open("sha256:" + "a" * 64, first).append(line)
    assert FileKeeper().open("sha256:" + "a" * 64, renamed).records.fixed_bytes == 777
    haswell = {"kind": "llvm", "mcpu": "haswell", "num_cores": 1}
    others = [
        *(here(lacking=flag) for flag in ("avx512_fp16", "amx_int8", "avx512_vnni", "avx2", "adx")),
        here(l2_bytes=1 << 20),
        here(TargetSpec(kind="llvm", num_cores=1)),
        here(TargetSpec(kind="llvm", mattr=("-fast-gather",))),
        here(TargetSpec(**haswell)),
        here(TargetSpec(**haswell), lacking="avx512_fp16"),  # code for it, timed on another machine
    ]
    assert len({device["id"] for device in (first, *others)}) == 1 + len(others)
    assert here(TargetSpec(kind="llvm", mcpu="emeraldrapids"))["id"] == first["id"], "as a spec names it"


@on_x86
def test_what_a_named_processor_has_beyond_the_machine_is_said(machine: Callable[..., Host]) -> None:
    here = machine("sapphirerapids", lacking="amx_tile amx_bf16 amx_int8")
    spec = TargetSpec(kind="llvm", mcpu="sapphirerapids")
    assert resolve_target(spec).runs_here, "no code asks for tiles by itself"
    assert here.refusal(resolve_target(spec)) == (
        "does not run sapphirerapids code: it lacks amx-bf16, amx-int8, amx-tile"
    )
    less = TargetSpec(kind="llvm", mcpu="sapphirerapids", mattr=("-amx-tile",))
    assert here.refusal(resolve_target(less)) is None


@on_x86
def test_the_id_of_an_earlier_version() -> None:
    """As it was on a Zen 4, with a header of that time."""
    host = Host("AMD EPYC", "x86_64", "znver4", tuple(cpu._features("znver4")), 2, 32 << 10, 1 << 20)
    assert device_record(resolve_target(LLVM, host), host, LLVM)["formerly"] == "2e3110c92f30618d"
