"""Small files that would take much time or memory are refused before they do."""

from __future__ import annotations

import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from child_processes import gone
from onnx_runs import import_model, model_of_nodes, onnx

from dietcode.errors import ModelError
from dietcode.models.importing import archives, builder, reader
from dietcode.models.importing.onnx import file
from dietcode.models.importing.onnx.file import inlined, load_onnx
from dietcode.models.importing.reader import read_model
from dietcode.recursion.sampling import load_samples

node, helper = onnx.helper.make_node, onnx.helper
X = {"x": ("float32", ["L", 4])}
DOMAIN = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
Body = Callable[[str, str], list[Any]]


def twice(callee: str, domain: str) -> list[Any]:
    return [node(callee, ["a"], ["t"], domain=domain), node(callee, ["t"], ["b"], domain=domain)]


def on_both_sides(callee: str, domain: str) -> list[Any]:
    sides = {}
    for word in ("then_branch", "else_branch"):
        result = helper.make_empty_tensor_value_info(word)
        sides[word] = helper.make_graph([node(callee, ["a"], [word], domain=domain)], word, [], [result])
    total, truth = node("ReduceSum", ["a"], ["sum"], keepdims=0), node("Cast", ["sum"], ["truth"], to=9)
    return [total, truth, node("If", ["truth"], ["b"], **sides)]


def once(callee: str, domain: str) -> list[Any]:
    return [node(callee, ["a"], ["b"], domain=domain)]


def nested_functions(depth: int, body: Body, last: tuple[str, str] = ("Neg", "")) -> Any:
    """A model that calls F0, which calls F1, and so on; the last calls what is given."""
    callees = [*((f"F{k}", "my") for k in range(1, depth)), last]
    functions = [
        helper.make_function("my", f"F{k}", ["a"], ["b"], body(*callee), DOMAIN)
        for k, callee in enumerate(callees)
    ]
    model = model_of_nodes([node("F0", ["x"], ["y"], domain="my")], X, ["y"])
    model.functions.extend(functions)
    model.opset_import.append(DOMAIN[1])
    return model


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nested_functions(60, twice), "over 10**12 nodes"),
        (nested_functions(18, twice), "262144 nodes, those of functions where they are called"),
        (nested_functions(18, on_both_sides), "1048573 nodes"),
        (nested_functions(70, once), "functions that call functions more than 64 deep"),
        (nested_functions(3, twice, ("F0", "my")), "none that calls itself"),
    ],
    ids=["far", "sides alike", "within branches", "deep", "circle"],
)
def test_functions_are_counted_before_they_are_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any, said: str
) -> None:
    monkeypatch.setattr(file, "inlined", None)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError) as raised:
        load_onnx(tmp_path / "m.onnx")
    assert said in str(raised.value) and str(raised.value).isprintable()


def test_functions_that_are_not_too_many_are_read() -> None:
    graph, _ = import_model(inlined(nested_functions(4, twice)), L=(1, 8))
    assert [one.operator for one in graph.nodes] == ["neg"] * 16


def test_nodes_are_counted_while_a_model_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of branches too: their graphs are in a file as often as they are read."""
    monkeypatch.setattr(builder, "_MAX_ADDED", 40)
    with pytest.raises(ModelError, match="more than 40 operators while it is read"):
        import_model(inlined(nested_functions(5, on_both_sides)), L=(1, 8))


def sizes(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


M = 2**20
HUGE: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "ConstantOfShape": ([node("ConstantOfShape", ["s"], ["y"])], {"s": sizes(M, M)}, "4096.0 GiB"),
    "a constant of 2 GiB": (
        [node("ConstantOfShape", ["s"], ["y"])], {"s": sizes(2**15, 2**14)}, "2.0 GiB made of numbers alone"
    ),
    "Range": (
        [node("Range", ["a", "b", "c"], ["y"])], {"a": sizes(0)[0], "b": sizes(2**30)[0], "c": sizes(1)[0]},
        "8.0 GiB made of numbers alone; allowed: 1 GiB",
    ),
    "Expand": ([node("Expand", ["x", "s"], ["y"])], {"s": sizes(M, M, 1, 1)}, "at its largest"),
    "Tile": ([node("Tile", ["x", "s"], ["y"])], {"s": sizes(M, M)}, "at its largest"),
    "Pad": ([node("Pad", ["x", "s"], ["y"])], {"s": sizes(0, 0, 2**31, 0)}, "allowed: 0 to 2147483647"),
    "OneHot": (
        [node("Cast", ["x"], ["i"], to=7), node("OneHot", ["i", "d", "v"], ["y"])],
        {"d": sizes(2**30), "v": np.array([0, 1], np.float32)}, "made of numbers alone",
    ),
    "Resize": (
        [node("Reshape", ["x", "r"], ["image"]), node("Resize", ["image", "", "f"], ["y"], mode="nearest")],
        {"r": sizes(1, 1, -1, 4), "f": np.array([1, 1, 2**16, 2**16], np.float32)}, "at its smallest",
    ),
    "MatMul": (
        [node("Reshape", ["x", "r"], ["row"]), node("Expand", ["row", "s"], ["many"]),
         node("Transpose", ["many"], ["t"], perm=[1, 0]), node("MatMul", ["many", "t"], ["y"])],
        {"r": sizes(1, -1), "s": sizes(2**17, 1)}, "64.0 GiB at its",
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", HUGE)
def test_huge_values_are_refused_by_the_name_of_the_operator(operator: str) -> None:
    nodes, constants, said = HUGE[operator]
    with pytest.raises(ModelError) as raised:
        import_model(model_of_nodes(nodes, X, ["y"], constants), L=(1, 8))
    assert said in str(raised.value)
    assert operator.startswith("a ") or f"{nodes[-1].op_type}: " in str(raised.value)


def write_zip(path: Path, *names: str, num_bytes: int, depth: int = 1) -> Path:
    """An archive of zeros, within as many others."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in names:
            made.writestr(name, bytes(num_bytes))
    for level in range(1, depth):
        inner = path.read_bytes()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as made:
            made.writestr(f"level{level}", inner)
    return path


@pytest.mark.parametrize("depth", [1, 3])
def test_an_archive_is_measured_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    monkeypatch.setattr(archives, "_FREE_BYTES", 1 << 20)
    path = write_zip(tmp_path / "bomb.pt2", "a", "b", num_bytes=600 << 10, depth=depth)
    with pytest.raises(ModelError, match=r"bytes that unpack to 12\d{5} or more; allowed: 16 times its size"):
        archives.check_archive(path)
    archives.check_archive(write_zip(tmp_path / "large.pt2", "a", num_bytes=600 << 10, depth=depth))
    (tmp_path / "none").write_bytes(b"PK")
    archives.check_archive(tmp_path / "none")


@pytest.mark.parametrize("suffix", [".pt2", ".npz"])
def test_whoever_reads_an_archive_measures_it(tmp_path: Path, suffix: str) -> None:
    path = write_zip(tmp_path / f"bomb{suffix}", "a", "b", num_bytes=60 << 20)
    with pytest.raises(ModelError, match="allowed: 16 times its size"):
        read_model(path, "m", {}) if suffix == ".pt2" else load_samples(path)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Return a function that writes a module where readers find it."""
    monkeypatch.syspath_prepend(tmp_path / "modules")
    paths = [str(tmp_path / "modules"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    (tmp_path / "modules").mkdir()

    def write(name: str, text: str) -> str:
        (tmp_path / "modules" / f"{name}.py").write_text(text)
        return name

    return write


READER = """
import json, sys, time
from pathlib import Path
from dietcode.models.importing.reader import answer
def read():
    Path(json.loads(sys.argv[1])[1], "begun").touch()
    {}
answer(read)
"""


def test_reading_has_a_bound_of_time_and_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: Callable[[str, str], str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    eats = modules("eats_memory", READER.format("bytearray(1 << 40)"))
    with (
        pytest.raises(
            ModelError, match="more memory than there is, or than the limit of 16 GiB for its size"
        ),
        reader.reading(tmp_path / "m.onnx", eats, [], tmp_path / "m.onnx"),
    ):
        pass
    sleeps = modules("sleeps_long", READER.format("time.sleep(60)"))
    monkeypatch.setattr(reader, "most_secs", lambda _: 0.5)
    with (
        pytest.raises(ModelError, match="not read after 0 s, the most for its size; export parts"),
        reader.reading(tmp_path / "m.onnx", sleeps, [], tmp_path / "m.onnx"),
    ):
        pass


PARENT = """
import sys
from pathlib import Path
from dietcode.models.importing.reader import reading
path = Path(sys.argv[2])
with reading(path, sys.argv[1], [], path if sys.argv[3] == "confined" else None):
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["confined", "of the user's own code"])
def test_who_reads_ends_with_who_asked(
    tmp_path: Path, modules: Callable[[str, str], str], kind: str, number: signal.Signals
) -> None:
    """Also where SIGINT is ignored, as under nohup."""
    (tmp_path / "m.onnx").write_bytes(b"")
    sleeps = modules("sleeps_long", READER.format("time.sleep(60)"))
    command = [sys.executable, "-c", PARENT, sleeps, str(tmp_path / "m.onnx"), kind]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        parent = psutil.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path)})
    finally:
        signal.signal(signal.SIGINT, before)
    until = time.monotonic() + 30
    while not list(tmp_path.glob("dietcode-model-*/begun")):
        assert parent.is_running() and time.monotonic() < until
        time.sleep(0.02)
    children = parent.children(recursive=True)
    assert children
    parent.send_signal(number)
    assert parent.wait(10) == -number
    assert gone(children)
