"""Targets are resolved in a child, so that the server's process never holds the compiler."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_libraries import spec_data

from dietcode.errors import ServerError, TargetError
from dietcode.measure.gpu import list_gpus
from dietcode.runtime.cpu import available_cores
from dietcode.target.cpu import device_record, resolve_target
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import TargetSpec
from dietcode_server.engine import targets as targets_module
from dietcode_server.engine.targets import Resolved, Targets, answers
from dietcode_server.store.device_headers import device_row


def test_the_machine_itself_is_what_the_compiler_says() -> None:
    given = spec_from_data(spec_data("dense"))
    found = Targets().resolve(given)
    here = resolve_target(given.target)
    assert found.target == here.to_json() and found.runnable
    assert found.device is not None
    assert found.device == device_row(device_record(here, spec=given.target))


@pytest.mark.long
def test_a_target_of_another_machine_has_no_device_here() -> None:
    more = available_cores() + 1
    given = spec_from_data(spec_data("dense", target={"kind": "llvm", "num_cores": more}))
    found = Targets().resolve(given)
    assert found.target["num_cores"] == more and not found.runnable and found.device is None


def test_a_cpu_without_the_features_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietcode.target.cpu.missing_features", lambda names: ["avx2"])
    (found,) = answers({"target": {"kind": "llvm", "mcpu": "haswell"}, "hosts": [None], "engine": {}})
    assert not found["runnable"]


@pytest.mark.sampled(keep=1)
@pytest.mark.skipif(bool(list_gpus()), reason="has a GPU")
@pytest.mark.parametrize("target", [{"kind": "cuda", "arch": "sm_80"}, "nvidia/nvidia-a100"])
def test_a_gpu_is_a_target_and_no_device_where_there_is_none(target: object) -> None:
    found = Targets().resolve(spec_from_data(spec_data("dense", target=target)))
    assert found.target == {"kind": "cuda", "arch": "sm_80"}
    assert found.device is None and not found.runnable


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"kind": "llvm", "mcpu": "pentium-9"}, "target.mcpu"),
        ({"kind": "cuda", "arch": "sm_91"}, "target.arch: given 'sm_91'"),
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
        "import dietcode_server.store.jobs, dietcode_server.store.libraries, dietcode_server.app\n"
        "print(sorted({'tvm', 'xgboost', 'sklearn', 'torch', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_child_that_resolves_imports_no_database() -> None:
    code = "import sys, dietcode_server.engine.targets; print({'sqlalchemy', 'tvm'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"


def test_questions_come_one_at_a_time_and_the_same_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    at_once: list[int] = []
    running = threading.Semaphore(0)

    def ask(target: bytes) -> list[str]:
        asked.append(target)
        at_once.append(len(asked) - answered[0])
        running.release()
        time.sleep(0.1)
        answered[0] += 1
        return ["no such target"]

    answered = [0]
    monkeypatch.setattr(targets_module, "_answers_of_child", ask)
    targets = Targets()

    def resolve(cores: int) -> str:
        given = spec_from_data(spec_data("dense", target={"kind": "llvm", "num_cores": cores}))
        try:
            targets.resolve(given)
        except (TargetError, ServerError) as error:
            return str(error)
        return "resolved"

    with ThreadPoolExecutor(40) as pool:
        same = [pool.submit(resolve, 1) for _ in range(10)]
        running.acquire()
        others = [pool.submit(resolve, cores) for cores in range(2, 30)]
        said = [one.result() for one in [*same, *others]]
    assert said[:10] == ["no such target"] * 10 and asked.count(asked[0]) == 1
    refused = [text for text in said[10:] if "too many new targets at once" in text]
    assert len(refused) >= 20 and set(said[10:]) == {"no such target", refused[0]}
    assert set(at_once) == {1}, "one child of the compiler at a time"
    assert resolve(1) == "no such target" and asked.count(asked[0]) == 1


def test_an_answer_that_does_not_come_is_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets_module.sys, "executable", "/bin/false")
    targets, given = Targets(), spec_from_data(spec_data("dense"))
    for _ in range(2):
        with pytest.raises(ServerError, match="cannot be resolved"):
            targets.resolve(given)


@pytest.mark.long
def test_other_machines_are_asked_about_in_one_question() -> None:
    targets = Targets()
    here = targets.on(TargetSpec(kind="llvm"))
    small = here.host | {"name": "A small CPU", "num_cores": 1}
    plain = here.host | {"name": "A plain CPU", "features": []}
    given = TargetSpec(kind="llvm", mcpu=here.target["mcpu"], num_cores=2)
    found = targets.at(given, [here.host | {"num_cores": 2}, small, plain])
    assert [one.runnable for one in found if isinstance(one, Resolved)] == [True, False, False]
    (other,) = targets.at(TargetSpec(kind="llvm"), [small])
    assert isinstance(other, Resolved) and other.device is not None
    assert other.device[1] == "A small CPU" and other.target["num_cores"] == 1
    assert other.device[0] != (here.device or ("",))[0]
