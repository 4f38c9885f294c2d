"""What runs in the process that measures on a GPU; as in `dietcode.measure.worker`, with plain data."""

from __future__ import annotations

import functools
from typing import Any

import tvm_ffi

from dietcode.confinement import confine
from dietcode.lifeline import die_with_parent
from dietcode.measure.device_tensors import tensor_at
from dietcode.measure.gpu_session import Session, largest_error, random_inputs
from dietcode.search_space.expected import expect
from dietcode.search_space.problem import Problem
from dietcode.workload.dtypes import nan_filled

_SESSIONS: list[Session] = []


def start_child(temporary: str) -> None:
    """First thing in the process: end with the parent, confined as far as a driver allows.

    Parameters
    ----------
    temporary : str
        As `dietcode.confinement.confine` takes it. Address space is not bounded: a driver reserves more of it
        than there is memory.
    """
    die_with_parent()
    confine(None, temporary, drives_gpu=True)


def _session(request: dict[str, Any]) -> Session:
    """The only one of this process, in use by this thread."""
    if not _SESSIONS:
        _SESSIONS.append(Session(request["index"], request["l2_bytes"]))
    _SESSIONS[0].driver.use(request["index"])
    return _SESSIONS[0]


@functools.cache
def _library(path: str) -> Any:
    return tvm_ffi.load_module(path)


def measure_kernel(request: dict[str, Any]) -> dict[str, Any]:
    """Check one micro-kernel against float64 and time it, at several extents.

    `request` holds ``problem``, ``cubin``, ``calls`` (`dietcode.search_space.cuda.launches.Call`, at least
    one), ``is_timed``, ``keeps`` (whether the tensors will be wanted again) and ``max_checked_flops`` (of a
    call: of larger ones a sample of the rows is checked, because float64 on the CPU would take too long;
    without ``samples`` they are timed alone, as in a sweep, whose kernel is right where it is smallest).

    Returns ``{"secs": [float for each call], "max_error", "registers", "stack_bytes", "resident_blocks"}``.

    Raises
    ------
    ValueError
        It gives wrong numbers.
    GpuError
        The driver refuses it, or the GPU stopped it.
    """
    problem, session = request["problem"], _session(request)
    module = session.driver.load(request["cubin"])
    launches, block = request["calls"][0].launches, request["calls"][0].block
    functions = [module.function(launch.symbol, launch.shared_bytes) for launch in launches]
    worst, secs = 0.0, []
    for call in request["calls"] if request["is_timed"] else ():
        tensors = session.tensors(problem, call.extents)
        run = session.bind(problem, call, functions, tensors)
        most = request["max_checked_flops"]
        if request.get("samples", True) or problem.flops(dict(call.extents)) <= most:
            error = session.error_of(problem, call.extents, tensors, run, most)
            _refuse(problem, error, call.extents)
            worst = max(worst, error)
        secs.append(session.seconds_of(run, len(tensors.sets)))
        if not request["keeps"]:
            session.forget()
    resident = functions[block].resident_blocks(launches[block].threads)
    facts = functions[block].facts() | {"resident_blocks": resident}
    module.unload()
    return {"secs": secs, "max_error": worst, **facts}


def check_library(request: dict[str, Any]) -> dict[str, Any]:
    """Call a finished library on the GPU and compare it with float64, at one instance.

    `request` holds ``problem``, ``path``, ``extents``, ``values`` (of the shape variables), ``seed``,
    ``workspace_bytes`` and ``max_checked_flops``, as `measure_kernel` has it.

    Returns ``{"max_error"}``.

    Raises
    ------
    ValueError
        It gives wrong numbers.
    GpuError, RuntimeError
        It cannot be loaded or run.
    """
    problem, extents, session = request["problem"], request["extents"], _session(request)
    library = _library(request["path"])
    inputs = random_inputs(problem, extents, request["seed"])
    output = nan_filled(problem.shape(problem.output, extents), problem.output_dtype)
    arrays = inputs | {problem.output: output}
    addresses = {name: session.allocate(array.nbytes) for name, array in arrays.items()}
    workspace = session.allocate(request["workspace_bytes"])
    for name, array in arrays.items():
        session.driver.upload(addresses[name], array)
    tensors = [
        tensor_at(addresses[name], array.shape, problem.dtype(name), request["index"])
        for name, array in arrays.items()
    ]
    library["run"](*tensors, workspace, *request["values"])
    session.driver.synchronize()
    session.driver.download(output, addresses[problem.output])
    for address in (*addresses.values(), workspace):
        session.driver.free(address)
    error = expect(problem, inputs, extents, request["max_checked_flops"]).error_of(output)
    _refuse(problem, error, extents)
    return {"max_error": error}


def _refuse(problem: Problem, error: float, extents: dict[str, int]) -> None:
    if not error <= largest_error(problem):
        raise ValueError(f"wrong result: error {error:.3g} of the output's scale at {extents}")
