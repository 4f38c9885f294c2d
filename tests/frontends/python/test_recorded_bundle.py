"""A recorded program by the command line, and what its bundle does with its Python file."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from needs import of_extra
from small_libraries import untuned_library

import dietcode
from dietcode.errors import LibraryError

if find_spec("torch") is None or find_spec("tvm") is None:
    pytest.skip(of_extra("models"), allow_module_level=True)

import torch

from dietcode.runtime.recorded.session import Session

pytestmark = pytest.mark.xdist_group("recorded bundle")

# A recursion, a wait, an operator without a kernel, an exception, and state that PyTorch does not see.
_FILE = """
import torch, dietcode
from dataclasses import dataclass
from torch import nn

torch.manual_seed(0)
embedding, cell, score = nn.Embedding(7, 8).eval(), nn.RNNCell(8, 8).eval(), nn.Linear(8, 1).eval()
step = nn.Linear(8, 8).eval()
seen = {}

@dataclass
class Tree:
    word: int
    below: list

def node(tree):
    h = embedding(torch.tensor(tree.word))
    for state in dietcode.map(node, tree.below):
        h = cell(state, h)
    return h

def grown(h):
    return torch.tanh(step(h))

def ordered(h):
    return torch.linalg.det(h.reshape(2, 2, 2))

@dietcode.program
def encode(tree):
    seen[tree.word] = seen.get(tree.word, 0) + 1
    h = node(tree)
    steps = 0
    while steps < 3 and score(h) > 0:
        h = grown(h)
        steps += 1
    if tree.word == 6:
        raise KeyError(f"six after {steps}")
    return {"steps": steps, "h": h, "det": ordered(h)}

def tree(depth, word):
    return Tree(word % 6, [tree(depth - 1, 3 * word + at) for at in range(depth)])

def samples():
    return [tree(depth, word) for depth in (0, 1, 2, 3) for word in range(4)]
"""
_CHANGED = _FILE.replace("torch.tanh(step(h))", "torch.tanh(step(h)) / 2")


class _Compiled(NamedTuple):
    file: Path
    bundle: Path
    output: str


def _module(file: Path, text: str | None = None) -> Any:
    """The module of a file, or of another text that a folder of its own has under the same name."""
    if text is not None:
        folder = file.parent / f"other{len(list(file.parent.iterdir()))}"
        folder.mkdir()
        file = folder / file.name
        file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Compiled]:
    from dietcode.cli import main
    from dietcode.models import compiling

    folder = tmp_path_factory.mktemp("recorded")
    file, bundle = folder / "shrubs.py", folder / "bundle"
    file.write_text(_FILE)
    options = ["--samples", "samples", "--trials", "2", "--seconds", "1", "--recorded"]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(compiling, "make_library", untuned_library)
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "argv", ["dietcode", "compile", f"{file}:encode", "-o", str(bundle), *options])
        main()
    yield _Compiled(file, bundle, printed.getvalue())


@pytest.fixture
def loaded(compiled: _Compiled) -> tuple[Any, Any]:
    module = _module(compiled.file)
    return dietcode.load(compiled.bundle, program=module.encode), module


def _line_of(text: str) -> str:
    return f"shrubs.py:{_FILE[: _FILE.index(text)].count(chr(10)) + 1}"


def _is_eager(found: list[Any], module: Any, instances: list[Any]) -> None:
    for one, instance in zip(found, instances, strict=True):
        wanted = module.encode.eager(instance)
        assert one["steps"] == wanted["steps"]
        torch.testing.assert_close(one["h"], wanted["h"], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(one["det"], wanted["det"], rtol=1e-4, atol=1e-5)


def test_compiling_says_what_runs_eagerly_and_how_to_load_it(compiled: _Compiled) -> None:
    assert f"dietcode.load('{compiled.bundle}', program=encode)" in compiled.output
    lines = [one for one in compiled.output.splitlines() if one.startswith("runs eagerly")]
    (line,) = lines
    assert f"{_line_of('return torch.linalg.det')}: " in line
    assert "linalg_det" in line


def test_results_are_those_of_the_function(loaded: tuple[Any, Any]) -> None:
    program, module = loaded
    instances = module.samples()
    found = program(instances)
    assert {one["steps"] for one in found} > {0}
    assert module.seen == {0: 4, 1: 4, 2: 4, 3: 4}
    _is_eager(found, module, instances)
    runs = program.block_runs(instances)
    assert sum(one.rows for one in runs) > len(instances) > max(one.secs for one in runs) > 0
    assert max(one.rows for one in runs) > 1


def test_the_parts_of_a_call_are_all_of_it(loaded: tuple[Any, Any]) -> None:
    program, module = loaded
    instances = module.samples()
    program(instances)
    begin = time.perf_counter()
    found = program.profile(instances)
    wall = time.perf_counter() - begin
    assert min(found.secs.values()) > 0
    assert 0.5 * wall < sum(found.secs.values()) <= wall
    assert found.secs["kernels"] == pytest.approx(sum(one.secs for one in found.runs))
    assert found.num_waits >= len(instances) - 1  # all but who finds it computed
    assert program.profile([]).num_waits == 0


def test_explain_has_each_line_that_ran_eagerly_and_how_often(loaded: tuple[Any, Any]) -> None:
    program, module = loaded
    program(module.samples())
    before = {one["where"]: one["count"] for one in program.explain()}
    program(module.samples()[:5])
    after = {one["where"]: one for one in program.explain()}
    det = after[_line_of("return torch.linalg.det")]
    assert "linalg_det" in det["reason"]
    assert det["count"] - before[det["where"]] == 5


def test_a_changed_function_is_computed_as_it_is_now(compiled: _Compiled) -> None:
    module = _module(compiled.file, _CHANGED)
    program = dietcode.load(compiled.bundle, program=module.encode)
    assert program.changed == ("shrubs.py:grown",)
    instances = module.samples()
    found = program(instances)
    _is_eager(found, module, instances)
    same = _module(compiled.file)
    assert any(
        not torch.allclose(one["h"], same.encode.eager(two)["h"])
        for one, two in zip(found, instances, strict=True)
    )
    explained = {one["where"]: one["reason"] for one in program.explain()}
    assert "source has changed" in explained["shrubs.py:grown"]
    assert program.block_runs(instances)  # of the other functions


def test_a_file_that_is_changed_while_it_is_loaded_does_what_its_functions_do(
    compiled: _Compiled, tmp_path: Path
) -> None:
    file = tmp_path / compiled.file.name
    file.write_text(_CHANGED)
    module = _module(file)
    instances = module.samples()
    wanted = [module.encode.eager(one)["h"] for one in instances]
    file.write_text(_FILE)  # what was compiled, but not what runs
    program = dietcode.load(compiled.bundle, program=module.encode)
    for one, right in zip(program(instances), wanted, strict=True):
        torch.testing.assert_close(one["h"], right, rtol=1e-5, atol=1e-5)


def test_weights_that_are_changed_in_place_are_seen_at_the_next_call(loaded: tuple[Any, Any]) -> None:
    program, module = loaded
    instances = module.samples()
    before = program(instances)
    with torch.no_grad():
        module.cell.weight_hh.mul_(-1.5)
        module.step.bias.add_(0.25)
    after = program(instances)
    _is_eager(after, module, instances)
    assert not torch.allclose(before[-1]["h"], after[-1]["h"])


def test_an_exception_is_the_user_s_own_and_leaves_other_instances_alone(loaded: tuple[Any, Any]) -> None:
    program, module = loaded
    instances = [
        module.Tree(1, [module.Tree(2, [])]),
        module.Tree(6, [module.Tree(1, [])]),
        module.Tree(3, []),
    ]
    found = program(instances, errors="return")
    _is_eager([found[0], found[2]], module, [instances[0], instances[2]])
    with pytest.raises(KeyError) as alone:
        module.encode.eager(instances[1])
    assert type(found[1]) is KeyError
    assert found[1].args == alone.value.args
    with pytest.raises(KeyError) as raised:
        program(instances)
    assert raised.value.args == alone.value.args
    assert raised.value.__notes__ == ["in instance 1 of shrubs"]


def test_threads_call_one_program_at_once(compiled: _Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both find first what a region takes: none of them computes eagerly for it."""
    found: list[list[Any]] = [[], []]
    both, module = threading.Barrier(2, timeout=60), _module(compiled.file)
    program, instances = dietcode.load(compiled.bundle, program=module.encode), module.samples()
    session, missed, accepts = program._session, Session.missed, program._session._accepts
    seen: set[Any] = set()

    def meet(self: Any, key: Any, *given: Any) -> Any:
        if (key, threading.get_ident()) not in seen and len(seen) < 2:
            seen.add((key, threading.get_ident()))
            both.wait()
        return missed(self, key, *given)

    def accept_slowly(*given: Any) -> Any:
        time.sleep(0.1)
        return accepts(*given)

    monkeypatch.setattr(Session, "missed", meet)
    monkeypatch.setattr(session, "_accepts", accept_slowly)

    def call(number: int) -> None:
        found[number] = [program(instances[number::2]) for _ in range(5)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for number, results in enumerate(found):
        assert len(results) == 5
        for one in results:
            _is_eager(one, module, instances[number::2])
    assert not any("kernels do not take" in one["reason"] for one in program.explain())


def test_a_bundle_is_loaded_with_its_program_alone(compiled: _Compiled, tmp_path: Path) -> None:
    for given in (None, torch.tanh):
        with pytest.raises(LibraryError, match=r"dietcode\.load\(DIR, program=encode\)"):
            dietcode.load(compiled.bundle, program=given)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(LibraryError, match="no recorded program; leave out program="):
        dietcode.load(tmp_path, program=_module(compiled.file).encode)


def test_pull_hands_the_program_on(compiled: _Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    from dietcode.client import Client

    monkeypatch.setattr(Client, "pull", lambda self, ref, folder: compiled.bundle)
    module = _module(compiled.file)
    program = dietcode.pull("shrubs", program=module.encode)
    instances = [module.tree(2, 1)]
    _is_eager(program(instances), module, instances)


def test_inspect_shows_blocks_regions_and_what_runs_eagerly(
    compiled: _Compiled, inside: Callable[..., Any]
) -> None:
    done = inside("inspect", compiled.bundle)
    assert done.returncode == 0, done.stderr
    regions, eager, blocks = (done.stdout.index(one) for one in ("Regions", "What runs eagerly", "Blocks"))
    assert regions < eager < blocks
    described = json.loads(inside("inspect", compiled.bundle, "--json").stdout)
    names = [one["name"] for one in described["report"]["blocks"]]
    for text, function in (("h = grown(h)", "encode"), ("h = cell(state", "node")):
        line = next(one for one in done.stdout[regions:eager].splitlines() if _line_of(text) in one)
        assert function in line
        assert any(one in line.split() for one in names)
    assert _line_of("return torch.linalg.det") in done.stdout[eager:blocks]
    assert [one["where"] for one in described["report"]["eager"]] == [_line_of("return torch.linalg.det")]


def test_bench_splits_a_call(compiled: _Compiled, inside: Callable[..., Any]) -> None:
    given = ("--program", f"{compiled.file}:encode", "--samples", f"{compiled.file}:samples")
    done = inside("bench", compiled.bundle, *given, "--rounds", "1", "--instances", "8", "--json")
    assert done.returncode == 0, done.stderr
    one, several = json.loads(done.stdout)
    assert [row["dimensions"]["instances"] for row in (one, several)] == [1, 8]
    host = {row["operator"]: row for row in several["host"]}
    assert {"Python, with recording", "waits", "scheduling", "arguments and results"} <= set(host)
    assert all(row["secs"] > 0 for row in host.values())
    module = _module(compiled.file)
    waits = sum(min(3, 1 + module.encode.eager(instance)["steps"]) for instance in module.samples()[:8])
    assert host["waits"]["calls"] >= waits
    (eager,) = several["eager"]
    assert eager["where"] == _line_of("return torch.linalg.det")
    assert eager["count"] == 8


@pytest.mark.parametrize("given", [("--program", "p.py:encode"), ("--samples", "p.py:samples")])
def test_bench_needs_the_program_and_its_instances(
    compiled: _Compiled, inside: Callable[..., Any], given: tuple[str, ...]
) -> None:
    done = inside("bench", compiled.bundle, *given)
    assert done.returncode == 2
    assert "give --program FILE.py:NAME and --samples FILE.py:NAME" in done.stderr


_READS = """
import torch, dietcode
from torch import nn

torch.manual_seed(0)
SCALE = 2.0

class Cell(nn.Module):
    GAIN = 3.0

    def __init__(self):
        super().__init__()
        self.inner, self.alpha = nn.Linear(4, 4), 0.5

    def forward(self, h):
        return torch.tanh(self.inner(h)) * self.alpha * self.GAIN

cell = Cell().eval()

def helper(h):
    return torch.sigmoid(h) * SCALE

@dietcode.program
def run(x):
    return helper(cell(x))

def samples():
    return [torch.randn(4) for _ in range(3)]
"""
_CHANGES: dict[str, Callable[[Any], None]] = {
    "nothing": lambda module: None,
    "a field": lambda module: setattr(module.cell, "alpha", 0.1),
    "a number of the file": lambda module: setattr(module, "SCALE", 5.0),
    "a number of the class": lambda module: setattr(module.Cell, "GAIN", 1.0),
    "a function": lambda module: setattr(module, "helper", lambda h: h),
    "a module": lambda module: setattr(module, "cell", module.Cell().eval()),
    "a part of a module": lambda module: setattr(module.cell, "inner", torch.nn.Linear(4, 4)),
    "weights in place": lambda module: module.cell.inner.weight.data.mul_(2),
}


def test_what_blocks_are_made_of_may_change_between_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dietcode.frontends.python.compiling import compile_recorded
    from dietcode.frontends.python.modeling import record
    from dietcode.models import compiling

    monkeypatch.setattr(compiling, "make_library", untuned_library)
    file, bundle = tmp_path / "reads.py", tmp_path / "bundle"
    file.write_text(_READS)
    module = _module(file)
    model, formed = record(module.run, module.samples(), "reads")
    options = compiling.Options(trials=2, seconds=1)
    compile_recorded(model, formed.blocks.weights.arrays, bundle, options=options)
    for name, change in _CHANGES.items():
        module = _module(file)
        program, given = dietcode.load(bundle, program=module.run), module.samples()
        program(given)
        change(module)
        for one, instance in zip(program(given), given, strict=True):
            torch.testing.assert_close(one, module.run.eager(instance), msg=name)
        program(given)
        for one, instance in zip(program(given), given, strict=True):
            torch.testing.assert_close(one, module.run.eager(instance), msg=name)
