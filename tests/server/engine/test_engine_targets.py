"""Targets are resolved in a child, so that the server's process never holds the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
from small_libraries import spec_data

from dietcode.errors import TargetError
from dietcode.runtime.cpu import available_cores
from dietcode.target.cpu import device_record, resolve_target
from dietcode.workload.parse import spec_from_data
from dietcode_server.engine.targets import Targets, describe_target


def test_the_machine_itself_is_what_the_compiler_says() -> None:
    given = spec_from_data(spec_data("dense"))
    found = Targets().resolve(given)
    here = resolve_target(given.target)
    assert found.target == here.to_json() and found.runnable
    assert found.device is not None
    assert found.device == (device_record(here)["id"], device_record(here)["name"], here.to_json())


def test_a_target_of_another_machine_has_no_device_here() -> None:
    more = available_cores() + 1
    given = spec_from_data(spec_data("dense", target={"kind": "llvm", "num_cores": more}))
    found = Targets().resolve(given)
    assert found.target["num_cores"] == more and not found.runnable and found.device is None


def test_a_cpu_without_the_features_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietcode.target.cpu.missing_features", lambda names: ["avx2"])
    assert not describe_target({"kind": "llvm", "mcpu": "haswell"})["runnable"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"kind": "llvm", "mcpu": "pentium-9"}, "target.mcpu"),
        ({"kind": "cuda", "arch": "sm_90"}, "cannot be built"),
        ("nobody/knows-this", "no TVM target tag"),
    ],
)
def test_an_unknown_target_is_refused_in_one_line_each_time(target: object, says: str) -> None:
    targets = Targets()
    given = spec_from_data(spec_data("dense", target=target))
    for _ in range(2):
        with pytest.raises(TargetError, match=says) as caught:
            targets.resolve(given)
        assert "\n" not in str(caught.value)


def test_the_servers_side_of_the_engine_imports_no_compiler() -> None:
    code = (
        "import sys, dietcode_server.engine.supervisor, dietcode_server.engine.targets\n"
        "import dietcode_server.store.jobs, dietcode_server.store.libraries, dietcode_server.api.app\n"
        "print(sorted({'tvm', 'xgboost', 'sklearn', 'torch', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
