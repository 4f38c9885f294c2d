"""A library for CUDA, whole; its host part runs against a driver that computes on the CPU."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from device_tensors import aligned, on_device
from emulated_driver import load_driver, register
from needs import needs_nvrtc

from dietcode.errors import TuningError
from dietcode.library.cuda.code import CudaCode, compile_library
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.shape import CallShape
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin, compile_ptx

sys.path.append(str(Path(__file__).parents[1] / "search_space"))
from compiled import make_problem
from emulation import compiled

pytestmark = needs_nvrtc

TARGETS = (CudaTarget("sm_80"), CudaTarget("sm_90a"))
TILES = (
    CudaMicroKernel(8, 16, 2, 2, 4, splits=3),
    CudaMicroKernel(16, 32, 4, 4, 8, stages=2, tails="partition"),
)
PROBLEM = make_problem("mk,nk->mn", {"n": 20, "k": 24}, [Stage("bias", tensor="bias"), Stage("relu")])
TREE = ("T", 1, 0, 1)


@pytest.fixture(scope="module")
def driver() -> ctypes.CDLL:
    """The emulated driver, with this library's kernels."""
    found = load_driver()
    kernels = compiled(cuda_text(PROBLEM, TILES, TARGETS[0]))
    register(found, kernels, [*(tile.symbol for tile in TILES), f"{TILES[0].symbol}_sum"])
    return found


@pytest.fixture(scope="module")
def code() -> CudaCode:
    return compile_library(PROBLEM, TILES, TREE, ("T",), TARGETS)


@pytest.fixture
def fresh(code: CudaCode, driver: ctypes.CDLL, tmp_path: Path) -> Any:
    """The library as a process finds it when nothing was called yet."""
    path = tmp_path / "library.so"
    path.write_bytes(code.library)
    zeros = (("num_loads", 0), ("num_loaded_functions", 0))
    for name, value in (("driver_version", 13000), ("init_status", 0), ("order", 0), *zeros):
        ctypes.c_int.in_dll(driver, name).value = value
    return tvm_ffi.load_module(str(path))


@pytest.fixture(scope="module")
def library(code: CudaCode, driver: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("library") / "library.so"
    path.write_bytes(code.library)
    return tvm_ffi.load_module(str(path))


def inputs_of(rows: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"X": (rows, 24), "W": (20, 24), "bias": (20,)}
    return {name: aligned(rng.standard_normal(shape, dtype=np.float32)) for name, shape in shapes.items()}


def workspace_of(tile: CudaMicroKernel, rows: int) -> Any:
    elements = CallShape(PROBLEM, tile, {"m": rows, "n": 20, "k": 24}).workspace_elements
    return aligned(np.full(max(1, elements), np.nan, np.float32))


def call(library: Any, inputs: dict[str, Any], value: int, index: int = 0) -> Any:
    rows = inputs["X"].shape[0]
    output = aligned(np.full((rows, 20), np.nan, np.float32))
    workspace = workspace_of(TILES[int(library["select"](value))], rows)
    tensors = [on_device(array, index) for array in (*inputs.values(), output)]
    library["run"](*tensors, workspace.ctypes.data, value)
    return output


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("rows", [1, 7, 8, 16, 17, 40])
@pytest.mark.parametrize("value", [1, 2])
def test_both_categories_compute(rows: int, value: int, library: Any) -> None:
    inputs = inputs_of(rows, rows)
    assert library["select"](value) == value - 1
    output = call(library, inputs, value)
    assert np.abs(output - reference(PROBLEM, inputs)).max() < 1e-4


def test_it_runs_on_the_callers_stream(library: Any, driver: ctypes.CDLL) -> None:
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), 0x5150):
        call(library, inputs_of(3), 1)
    assert ctypes.c_void_p.in_dll(driver, "last_stream").value == 0x5150
    call(library, inputs_of(3), 1)
    assert not ctypes.c_void_p.in_dll(driver, "last_stream").value


def test_parts_are_added_by_a_launch_that_may_begin_early(library: Any, driver: ctypes.CDLL) -> None:
    """On GPUs that can wait within a function; on others it is launched as any other."""
    overlapping = ctypes.c_int.in_dll(driver, "num_overlapping")
    for index, value, expected in ((0, 1, 1), (0, 2, 0), (1, 1, 0)):
        before, inputs = overlapping.value, inputs_of(5)
        output = call(library, inputs, value, index)
        assert overlapping.value - before == expected
        assert np.abs(output - reference(PROBLEM, inputs)).max() < 1e-4


def test_what_may_begin_early_waits_before_it_reads() -> None:
    """In machine code of architectures that have the instructions; on older ones nothing stands there."""
    text = cuda_text(PROBLEM, TILES[:1], TARGETS[1])
    block, adding = text.split('extern "C" __global__')[1:]
    assert block.count("let_next_begin();") == 1
    assert block.index("let_next_begin();") < block.index("arg_workspace + ")
    assert "wait_for_previous" not in block
    body = adding[adding.index("{") :]
    assert body.index("wait_for_previous();") < min(body.index(name) for name in ("arg_", "read_written("))
    assert "arg_workspace[" not in body.replace("read_written((&(arg_workspace[", "")
    for arch, counts in (("sm_75", (0, 0)), ("sm_89", (0, 0)), ("sm_90a", (1, 1)), ("sm_100", (1, 1))):
        ptx = compile_ptx(cuda_text(PROBLEM, TILES[:1], CudaTarget(arch)), CudaTarget(arch)).decode()
        found = ("griddepcontrol.launch_dependents", "griddepcontrol.wait")
        assert tuple(ptx.count(one) for one in found) == counts, arch
        assert "ld.global.cg.f32" in ptx


def test_one_launch_a_call_and_two_where_the_reduction_is_split(library: Any, driver: ctypes.CDLL) -> None:
    launches = ctypes.c_int.in_dll(driver, "num_launches")
    for value, expected in ((1, 2), (2, 1)):
        before = launches.value
        call(library, inputs_of(5), value)
        assert launches.value - before == expected


def test_machine_code_is_loaded_once_a_device_and_is_that_devices(fresh: Any, driver: ctypes.CDLL) -> None:
    loads, image = ctypes.c_int.in_dll(driver, "num_loads"), ctypes.c_void_p.in_dll(driver, "last_image")
    expected = [
        compile_cubin(cuda_text(PROBLEM, TILES, target), target, reproducible=True) for target in TARGETS
    ]
    fresh["prepare"](0)  # a 9.0
    assert image.value is not None
    assert ctypes.string_at(image.value, len(expected[1])) == expected[1]
    fresh["prepare"](1)  # an 8.6 runs what is for 8.0
    assert ctypes.string_at(image.value, len(expected[0])) == expected[0]
    assert ctypes.c_int.in_dll(driver, "num_loaded_functions").value == 2 * 3  # no launch has to
    call(fresh, inputs_of(3), 1, 0)
    call(fresh, inputs_of(3), 1, 1)
    assert loads.value == 2


def test_a_call_asks_the_driver_for_launches_alone(library: Any, driver: ctypes.CDLL) -> None:
    """It waits for nothing and allocates nothing, so that a graph can capture it."""
    library["prepare"](0)
    calls = ctypes.c_int.in_dll(driver, "num_calls")
    capturing = ctypes.c_int.in_dll(driver, "is_capturing")
    for value, launches in ((1, 2), (2, 1)):
        before, capturing.value = calls.value, 1
        call(library, inputs_of(5), value)
        assert calls.value - before == 1 + launches  # which context is current, before them
        assert capturing.value == 1  # not spoiled
        capturing.value = 0


def test_machine_code_that_was_not_loaded_ahead_of_a_capture_is_a_sentence(
    fresh: Any, driver: ctypes.CDLL
) -> None:
    capturing = ctypes.c_int.in_dll(driver, "is_capturing")
    capturing.value = 1
    with pytest.raises(RuntimeError, match=r"while a graph is captured; call prepare\(0\) before"):
        call(fresh, inputs_of(3), 1)
    assert capturing.value == -1
    capturing.value = 0
    fresh["prepare"](0)  # no half of it is left
    capturing.value = 1
    call(fresh, inputs_of(3), 1)
    assert capturing.value == 1
    capturing.value = 0


def test_the_device_of_the_tensors_is_used_and_left_as_it_was(library: Any, driver: ctypes.CDLL) -> None:
    context = ctypes.c_void_p.in_dll(driver, "last_context")
    inputs = inputs_of(9)
    assert np.array_equal(call(library, inputs, 2, 0), call(library, inputs, 2, 1))
    assert context.value == 0x101
    assert ctypes.c_int.in_dll(driver, "depth").value == 0
    call(library, inputs, 2, 0)
    assert context.value == 0x100


def test_a_newer_gpu_takes_the_ptx(fresh: Any, driver: ctypes.CDLL) -> None:
    majors = (ctypes.c_int * 2).in_dll(driver, "major_of")
    majors[0] = 12
    try:
        fresh["prepare"](0)
        image = ctypes.c_void_p.in_dll(driver, "last_image").value
        newest = CudaTarget("sm_90")
        ptx = compile_ptx(cuda_text(PROBLEM, TILES, newest), newest, reproducible=True)
        assert image is not None
        assert ctypes.string_at(image, len(ptx)) == ptx
    finally:
        majors[0] = 9


def test_an_older_gpu_is_told_what_there_is(fresh: Any, driver: ctypes.CDLL) -> None:
    majors = (ctypes.c_int * 2).in_dll(driver, "major_of")
    majors[0], minors = 7, (ctypes.c_int * 2).in_dll(driver, "minor_of")
    minors[0] = 5
    try:
        with pytest.raises(
            RuntimeError, match=r"cuda:0 is an sm_75; .* sm_80, sm_90a, sm_90 and newer \(PTX\)"
        ):
            fresh["prepare"](0)
    finally:
        majors[0], minors[0] = 9, 0


def test_an_old_driver_is_told_what_is_needed(fresh: Any, driver: ctypes.CDLL) -> None:
    ctypes.c_int.in_dll(driver, "driver_version").value = 12080
    with pytest.raises(
        RuntimeError, match=r"the NVIDIA driver is for CUDA 12.8; this library needs one for 13.0"
    ):
        fresh["prepare"](0)


def test_no_gpu_at_load(fresh: Any, driver: ctypes.CDLL) -> None:
    ctypes.c_int.in_dll(driver, "init_status").value = 100
    with pytest.raises(RuntimeError, match=r"no GPU can be used: cuInit: CUDA_ERROR_NO_DEVICE \(100\)"):
        fresh["prepare"](0)
    ctypes.c_int.in_dll(driver, "init_status").value = 0
    fresh["prepare"](0)  # nothing half done was kept


def test_no_such_device(fresh: Any) -> None:
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_DEVICE"):
        fresh["prepare"](5)
    with pytest.raises(RuntimeError, match="no such device"):
        fresh["prepare"](-1)


def _misplaced(array: Any) -> Any:
    area = np.zeros(array.size + 1, np.float32)
    start = 1 if area.ctypes.data % 16 == 0 else 0
    copy = area[start : start + array.size].reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("X", lambda x: on_device(x, kind=1), "X: not on a GPU"),
        ("W", lambda x: on_device(x, 1), "W: on cuda:1, but X is on cuda:0; move one of them"),
        ("W", lambda x: on_device(x.astype(np.float16)), "W: of another dtype"),
        ("X", lambda x: on_device(x[0]), "X: 1 dimensions; allowed: 2"),
        ("X", lambda x: on_device(x[:, :20]), "X: not contiguous"),
        ("W", lambda x: on_device(aligned(x[:19])), "W: extent 19 of axis 0; allowed: 20"),
        ("X", lambda x: on_device(_misplaced(x)), "X: its address is no multiple of 16 bytes"),
    ],
)
def test_wrong_tensors_are_refused(
    name: str, change: Callable[[Any], Any], message: str, library: Any, driver: ctypes.CDLL
) -> None:
    inputs = inputs_of(6)
    output = aligned(np.zeros((6, 20), np.float32))
    tensors = {key: on_device(value) for key, value in inputs.items()} | {"Y": on_device(output)}
    tensors[name] = change(inputs[name])
    before = ctypes.c_int.in_dll(driver, "num_launches").value
    with pytest.raises((ValueError, TypeError), match=message):
        library["run"](*tensors.values(), 0, 2)
    assert ctypes.c_int.in_dll(driver, "num_launches").value == before


def test_an_output_of_other_rows_is_refused(library: Any) -> None:
    inputs = inputs_of(6)
    tensors = [on_device(value) for value in (*inputs.values(), aligned(np.zeros((7, 20), np.float32)))]
    with pytest.raises(ValueError, match="Y: extent 7 of axis 0; allowed: 6"):
        library["run"](*tensors, 0, 2)


@pytest.mark.parametrize("start", [0, 100, 140])  # up to the last vector of X
def test_an_output_that_overlaps_an_input_is_refused(start: int, library: Any) -> None:
    area = aligned(np.zeros(6 * 24 + 120, np.float32))
    output = area[start : start + 120].reshape(6, 20)
    inputs = inputs_of(6) | {"X": area[:144].reshape(6, 24)}
    tensors = [on_device(value) for value in (*inputs.values(), output)]
    with pytest.raises(ValueError, match="Y: overlaps X; pass memory of its own"):
        library["run"](*tensors, 0, 2)
    beside = [on_device(value) for value in (*inputs.values(), area[144:264].reshape(6, 20))]
    library["run"](*beside, 0, 2)


def test_a_missing_workspace_is_refused(library: Any) -> None:
    tensors = [on_device(v) for v in (*inputs_of(6).values(), aligned(np.zeros((6, 20), np.float32)))]
    with pytest.raises(ValueError, match="no workspace"):
        library["run"](*tensors, 0, 1)


def test_threads_that_come_first_at_once_load_once(fresh: Any, driver: ctypes.CDLL) -> None:
    gate, failures = threading.Barrier(8), []

    def work() -> None:
        try:
            gate.wait()
            fresh["prepare"](0)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ctypes.c_int.in_dll(driver, "num_loads").value == 1


@pytest.mark.thorough
def test_the_same_inputs_give_the_same_bytes(code: CudaCode) -> None:
    assert compile_library(PROBLEM, TILES, TREE, ("T",), TARGETS).library == code.library


def test_a_launch_asks_for_shared_memory_beyond_what_code_declares(
    driver: ctypes.CDLL, tmp_path: Path
) -> None:
    """Tensor cores in a library: the driver refuses a launch that asks for more than it was told of."""
    tile = CudaMicroKernel(64, 64, 32, 32, 64, stages=4, unit="mma")
    assert tile.shared_bytes > 48 << 10
    problem = replace(PROBLEM, operand_dtype="float16", output_dtype="float16")
    code = compile_library(problem, [tile], 0, (), TARGETS[1:])
    assert code.kernels["sm_90a"][tile.symbol].shared_bytes == tile.shared_bytes
    register(driver, compiled(cuda_text(problem, [tile], TARGETS[1])), [tile.symbol])
    path = tmp_path / "library.so"
    path.write_bytes(code.library)
    library = tvm_ffi.load_module(str(path))
    most = ctypes.c_int.in_dll(driver, "block_shared_bytes")
    most.value = 48 << 10  # as of a GPU that takes the PTX, and has less
    with pytest.raises(RuntimeError, match=r"cuda:0, an sm_90, gives a block less than the 65536 bytes"):
        library["prepare"](0)
    most.value = 227 << 10
    inputs = {name: aligned(value.astype(np.float16)) for name, value in inputs_of(70).items()}
    output = aligned(np.full((70, 20), np.nan, np.float16))
    library["run"](*(on_device(array) for array in (*inputs.values(), output)), 0)
    assert np.abs(output - reference(problem, inputs)).max() < 1e-2


def test_architectures_that_cannot_run_a_micro_kernel_are_left_out() -> None:
    problem = replace(PROBLEM, operand_dtype="bfloat16")
    tile, older = CudaMicroKernel(32, 32, 16, 16, 32, stages=2, unit="mma"), CudaTarget("sm_75")
    code = compile_library(problem, [tile], 0, (), (TARGETS[0], older))
    assert list(code.kernels) == ["sm_80"]
    assert code.ptx_arch == "sm_80"
    assert code.left_out == {
        "sm_75": "32x32-t16x16-k32-s2-mma: bfloat16 operands for tensor cores; allowed: float16"
    }
    with pytest.raises(TuningError, match="sm_75: 32x32-t16x16-k32-s2-mma: bfloat16 operands"):
        compile_library(problem, [tile], 0, (), (older, TARGETS[0]))


def test_the_report_tells_what_each_kernel_takes(code: CudaCode) -> None:
    facts = code.to_json()
    assert set(facts) == {"sm_80", "sm_90a"}
    for of_arch in facts.values():
        assert set(of_arch) == {TILES[0].symbol, TILES[1].symbol, f"{TILES[0].symbol}_sum"}
        assert of_arch[TILES[1].symbol]["shared_bytes"] == TILES[1].shared_bytes
        assert not any(kernel["spills"] for kernel in of_arch.values())
