"""What `benchmarks.per_shape` runs in processes of their own, since a bad schedule can crash or hang.

    python -m benchmarks.per_shape_worker build|together|race

The request comes as JSON on standard input; the last line on standard output is the answer as JSON. A module
built here exports ``main(A, B, Y)`` and, where the schedule rewrites the layout of a constant B, ``pack(B,
packed)``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from dietcode.bench.compare import error_of
from dietcode.bench.operator import Operator
from dietcode.bench.vendor import vendor_paths
from dietcode.lifeline import die_with_parent
from dietcode.measure.turns import FEWEST_ROUNDS, interleave
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.loading import load
from dietcode.runtime.tensors import aligned_empty
from dietcode.search_space.reference import reference
from dietcode.search_space.seed import skip_foreign_intrinsics

_SAFE_ERROR = 1e-5
_SCREEN_ROUNDS = 5


class Case:
    """The operator at one shape, with data: inputs and output at multiples of 64 bytes, shared by all paths.

    Attributes
    ----------
    arrays : dict of str to float32 array
        Inputs by name, as the spec lays them out.
    output : float32 array
    """

    def __init__(self, manifest: dict[str, Any], binding: dict[str, int]) -> None:
        self.operator = Operator.of(manifest)
        shapes, problem = self.operator.shapes(binding), self.operator.problem
        rng = np.random.default_rng(0)
        self.arrays = {
            name: aligned(rng.standard_normal(shapes[name], dtype=np.float32))
            for name in self.operator.inputs
        }
        self.output = aligned(np.zeros(shapes[problem.output], dtype=np.float32))
        self.flops = float(problem.flops(self.operator.extents(binding)))
        self._expected = reference(problem, self.arrays)

    def error(self, call: Callable[[], Any]) -> float:
        """Largest error of a call, relative to the output's scale, the output poisoned beforehand.

        Raises
        ------
        ValueError
            It is above 1e-5.
        """
        self.output[...] = np.nan
        call()
        error = error_of(self.output, self._expected)
        if not error <= _SAFE_ERROR:
            raise ValueError(f"wrong result: error {error:.3g} of the output's scale")
        return error


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy at a multiple of 64 bytes."""
    copy = aligned_empty(array.shape)
    copy[...] = array
    return copy


def scheduled(database: str, rank: int) -> tuple[Any, Any]:
    """The schedule of one record, counted from the fastest, and the record.

    Raises
    ------
    ValueError
        There are not so many.
    """
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms

    records = ms.database.JSONDatabase(work_dir=database)
    workload = records.get_all_tuning_records()[0].workload
    best = records.get_top_k(workload, rank + 1)
    if rank >= len(best):
        raise ValueError(f"{database}: {len(best)} usable records")
    schedule = Schedule(workload.mod)
    best[rank].trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule, best[rank]


def packed_module(schedule: Any) -> tuple[Any, list[int] | None]:
    """The module as its trials were measured, with a function beside it that lays the weights out.

    ``main(A, B[n, k], Y): B' = rewrite(B); Y = A · B'``  ->  ``main(A, B'[…], Y)`` and ``pack(B, B')``

    MetaSchedule's own builder removes the rewriting block in the same way before it measures. It calls with
    arbitrary numbers, so it needs no ``pack``.

    Returns
    -------
    IRModule, list of int or None
        The module and the shape of B'; None where the schedule takes B as it is.

    Raises
    ------
    ValueError
        The trace rewrites layouts in a way that this function does not know.
    """
    rewrites = [step.inputs[1] for step in schedule.trace.insts if step.kind.name == "TransformLayout"]
    module = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
    given, wanted = _weight_shape(schedule.mod), _weight_shape(module)
    if not rewrites:
        return module, None
    if len(rewrites) > 1 or [int(extent) for extent in rewrites[0].map_shape(given)] != wanted:
        raise ValueError(f"{len(rewrites)} layouts are rewritten, B from {given} to {wanted}")
    module["pack"] = _pack_function(rewrites[0], given, wanted)
    return module, wanted


def _weight_shape(module: Any) -> list[int]:
    """Shape of the second argument of ``main``."""
    return [int(extent) for extent in module["main"].params[1].shape]


def _pack_function(index_map: Any, shape: list[int], packed_shape: list[int]) -> Any:
    """``P[i…] = B[inverse(i…)]``."""
    from tvm import te

    inverse = index_map.inverse(shape)
    b = te.placeholder(shape, name="B")
    p = te.compute(packed_shape, lambda *i: b(*inverse.map_indices(list(i))), name="P")
    return te.create_prim_func([b, p]).with_attr("global_symbol", "pack")


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Build one record of a database and check it against float64.

    Returns ``{"path", "packed_shape", "recorded_secs", "max_error"}``; the seconds are MetaSchedule's own.
    """
    schedule, record = scheduled(request["database"], request["rank"])
    module, packed_shape = packed_module(schedule)
    tvm.compile(module, target=record.target).export_library(request["path"])
    built = {
        "path": request["path"],
        "packed_shape": packed_shape,
        "recorded_secs": min(float(secs) for secs in record.run_secs),
    }
    case = Case(_manifest(request["library"]), request["binding"])
    return built | {"max_error": case.error(metaschedule_call(built, case))}


def together(request: dict[str, Any]) -> dict[str, Any]:
    """Build the records of several databases, one of each, into one library: ``{"bytes"}`` of it."""
    functions, targets = {}, []
    for number, (database, rank) in enumerate(request["records"]):
        schedule, record = scheduled(database, rank)
        module, _ = packed_module(schedule)
        targets.append(record.target)
        for variable, function in module.functions.items():
            name = f"{variable.name_hint}_{number}"
            functions[name] = function.with_attr("global_symbol", name)
    tvm.compile(tvm.IRModule(functions), target=targets[0]).export_library(request["path"])
    return {"bytes": Path(request["path"]).stat().st_size}


def _manifest(library: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((Path(library) / "manifest.json").read_text())
    return manifest


def metaschedule_call(built: dict[str, Any], case: Case) -> Callable[[], Any]:
    """A bare call of ``main``, the weights packed beforehand."""
    module = tvm.runtime.load_module(built["path"])
    row, column = (case.arrays[name] for name in case.operator.operands)
    if built["packed_shape"] is not None:
        packed = aligned_empty(tuple(built["packed_shape"]))
        module["pack"](column, packed)
        column = packed
    main, arguments = module["main"], _views([row, column, case.output])
    return lambda: main(*arguments)


def dietcode_call(folder: str, case: Case, binding: dict[str, int]) -> Callable[[], Any]:
    """A bare call of the library's ``run``, the weights packed beforehand; nothing in Python looks at it."""
    library = load(folder, num_threads=available_cores())
    arrays = dict(case.arrays)
    for name in library.manifest["packed"]:
        arrays[name] = library.pack(**{name: arrays[name]}).data
    arguments: list[Any] = _views([*(arrays[n] for n in library.manifest["argument_order"]), case.output])
    arguments += [binding[name] for name in library.manifest["variable_order"]]
    run = library._run
    return lambda: run(*arguments)


def user_call(folder: str, case: Case, binding: dict[str, int]) -> Callable[[], Any]:
    """A call of the library as its users write it, the weights packed beforehand."""
    library = load(folder, num_threads=available_cores())
    arguments: dict[str, Any] = dict(case.arrays)
    for name in library.manifest["packed"]:
        arguments[name] = library.pack(**{name: arguments[name]})
    arguments |= {keyword: binding[keyword] for keyword in library.manifest["binding"]["keywords"]}
    return lambda: library(**arguments, out=case.output)


def _views(arrays: list[Any]) -> list[Any]:
    """The same memory as the runtime's tensors, so that no call converts anything."""
    return [tvm_ffi.from_dlpack(array) for array in arrays]


def race(request: dict[str, Any]) -> dict[str, Any]:
    """Pick the fastest of the modules, then time it and the library in turns; seconds are medians.

    The pick has readings of its own: the fastest of several is too fast in the readings that chose it.
    """
    binding = request["binding"]
    case = Case(_manifest(request["library"]), binding)
    modules = {built["path"]: metaschedule_call(built, case) for built in request["modules"]}
    screened = interleave(modules, _SCREEN_ROUNDS)
    best = min(screened, key=lambda path: screened[path])
    binders = {}
    for vendor in request["vendors"]:
        binders |= vendor_paths(vendor, case.operator, available_cores())
    ours = user_call if binders else dietcode_call
    calls = {"metaschedule": modules[best], "dietcode": ours(request["library"], case, binding)}
    errors = {name: case.error(call) for name, call in calls.items()}
    secs = interleave(calls | {name: bind(case.arrays) for name, bind in binders.items()}, request["rounds"])
    return {
        "flops": case.flops,
        "best": best,
        "code_bytes": Path(best).stat().st_size,
        "screened_secs": screened,
        "secs": secs,
        "quartiles": dict(secs.quartiles),
        # Of fewer readings, as a try of this code has them, nothing is a figure.
        "disturbed": secs.disturbed if request["rounds"] >= FEWEST_ROUNDS else None,
        "vendors": list(binders),
        "errors": errors,
    }


if __name__ == "__main__":
    given = json.load(sys.stdin)
    die_with_parent()
    skip_foreign_intrinsics()
    print(json.dumps({"build": build, "together": together, "race": race}[sys.argv[1]](given)))
