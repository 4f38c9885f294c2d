"""Programs without tuning: the interpreter runs the form, and PyTorch every kernel from its spec."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tvm_ffi
from kernel_runs import computed_kernel

from dietcode.bench.operator import Operator
from dietcode.graph.extent import Extent, parse_extent
from dietcode.graph.operators import GRAPH_OPERATORS
from dietcode.models.planning import ModelPlan
from dietcode.programs.forming import form_program
from dietcode.programs.interpreter import FormRun
from dietcode.programs.recording import Recording
from dietcode.runtime.host_operators import HOST
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.models.loading import loaded_constants
from dietcode.runtime.programs.loaded import LoadedProgram
from dietcode.runtime.programs.loading import tables_of_ids
from dietcode.runtime.programs.plan import read_program
from dietcode.workload.parse import spec_from_data

MAX_ROWS = 4096  # of a table: PyTorch copies all of them
FOLDER = Path(__file__).parents[2] / "examples" / "programs"
Array = np.ndarray[Any, Any]


def example_of(name: str) -> Any:
    return module_in(FOLDER / f"{name}.py")


def module_in(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class PlanRun:
    """A plan with its weights."""

    def __init__(self, plan: ModelPlan, weights: Mapping[str, Array]) -> None:
        self.description = plan.description
        self.random = np.random.default_rng(3)
        self._kernels = {}
        for part in plan.parts:
            operator = Operator.of_spec(spec_from_data(part.fields))
            order = (list(operator.inputs), list(operator.spec.variables))
            self._kernels[part.digest] = (computed_kernel(operator), order)
        self._constants = {name: np.asarray(weights[name]) for name in self.description["weights"]}
        for block in self.description["blocks"]:
            for step in block["load"]:
                self._load(step)

    def run(self, instances: Sequence[Any], form: FormRun | None = None) -> list[Any]:
        """Return the results of instances, each of one argument."""
        found = form or self.form_run()
        return found.run([[one] for one in instances])

    def form_run(self) -> FormRun:
        tensors = [self._constants[one["value"]] for one in self.description["tensors"]]
        phases = [one["phase"] for one in self.description["blocks"]]
        return FormRun(self.description, phases, self._compute, tensors)

    def _load(self, step: Mapping[str, Any]) -> None:
        operands = [self._constants[o["value"]] if isinstance(o, Mapping) else o for o in step["operands"]]
        readers = GRAPH_OPERATORS[step["host"]].attributes
        attributes = {k: _numbers(readers[k].read(v)) for k, v in step["attributes"].items()}
        results = HOST[step["host"]](operands, attributes)
        self._constants |= dict(zip(step["results"], map(np.ascontiguousarray, results), strict=True))

    def _compute(self, number: int, rows: list[list[Any]]) -> list[list[Any]]:
        """Compute a block; the operands lie in tables, in a random order among rows that nobody reads."""
        block, types = self.description["blocks"][number], self.description["types"]
        if len(rows) > block["max_batch"]:  # in pieces
            most = block["max_batch"]
            return [*self._compute(number, rows[:most]), *self._compute(number, rows[most:])]
        values: dict[str, Array] = {}
        for k, own in enumerate(block["operands"]):
            column = [row[k] for row in rows]
            if types[own]["dtype"] == "int32":
                values[f"ids{k}"] = np.array([int(one) for one in column], np.int32)
                continue
            shape = types[own]["shape"] or [1]
            table = np.full((len(rows) + 2, *shape), np.nan, np.float32)
            places = self.random.permutation(len(table))[: len(rows)].astype(np.int32)
            table[places] = np.stack([np.asarray(one, np.float32).reshape(shape) for one in column])
            values |= {f"operand{k}": table, f"rows{k}": places}
        self._steps(block, values, len(rows))
        results = [
            values[f"next{k}"].reshape(len(rows), *types[own]["shape"])
            for k, own in enumerate(block["results"])
        ]
        return [[one[at] for one in results] for at in range(len(rows))]

    def _steps(self, block: Mapping[str, Any], values: dict[str, Array], rows: int) -> None:
        binding = {"B": rows, "T": rows + 2}
        for step in block["steps"]:
            known = self._constants | values
            if "move" in step:
                self._move(step, known, values, block, rows)
                continue
            run, (inputs, variables) = self._kernels[step["kernel"]]
            reads = [step["arguments"][name] for name in inputs]
            arguments = [known[one["value"]].reshape(_evaluated(one["shape"], binding)) for one in reads]
            outputs = [
                np.full(_evaluated(one["shape"], binding), np.nan, np.float32) for one in step["results"]
            ]
            run(*arguments, *outputs, *[_evaluated(step["variables"][name], binding) for name in variables])
            values |= {one["value"]: array for one, array in zip(step["results"], outputs, strict=True)}

    def _move(
        self,
        step: Mapping[str, Any],
        known: Mapping[str, Array],
        values: dict[str, Array],
        block: Mapping[str, Any],
        rows: int,
    ) -> None:
        types = self.description["types"]
        shapes = {f"next{k}": types[own]["shape"] or [1] for k, own in enumerate(block["results"])}
        name = step["result"]
        row = shapes[name] if name in shapes else self.description["values"][name]["shape"][1:]
        target = values.setdefault(name, np.full((rows, *_evaluated(row)), np.nan, np.float32))
        source = None if step["move"] is None else known[step["move"]]
        for at in range(rows):
            flat = None
            if source is not None:
                is_constant = step["move"] in self._constants and step["rows"] is None
                own = at if step["rows"] is None else int(known[step["rows"]][at])
                many = 1 if is_constant else rows if step["rows"] is None else len(source)
                flat = source.reshape(many, -1)[0 if is_constant else own]
            into = target[at].reshape(-1)
            for index in np.ndindex(*step["shape"]):
                place = step["from"][0] + int(np.dot(index, step["from"][1]))
                to = step["to"][0] + int(np.dot(index, step["to"][1]))
                into[to] = step["filler"] if flat is None else flat[place]


def native_program(plan: ModelPlan, weights: Mapping[str, Array]) -> LoadedProgram:
    """Return a plan as the machine in C runs it; PyTorch computes every kernel from its spec."""
    found = read_program(json.loads(json.dumps({**plan.description, "max_rows": MAX_ROWS})))
    run, orders, facts = {}, {}, {}
    for part in plan.parts:
        operator = Operator.of_spec(spec_from_data(part.fields))
        orders[part.digest] = (list(operator.inputs), list(operator.spec.variables))
        graph = part.fields["op"].get("block", {}).get("graph", {})
        run[part.digest] = tvm_ffi.convert(
            _on_arrays(computed_kernel(operator), list(operator.inputs), graph)
        )
        facts[part.digest] = SimpleNamespace(manifest={"workload": {"op": part.fields["op"]}})
    constants = loaded_constants(found, {name: np.asarray(weights[name]) for name in found.weights})
    limits: dict[tuple[int, int], int] = {}
    for number, block in enumerate(found.blocks):
        for operand, rows in tables_of_ids(Path("program.json"), found, block, facts):
            limits[number, operand] = min(rows, limits.get((number, operand), rows))
    kernels = Kernels(run, orders, {}, constants)
    return LoadedProgram(Path(), {}, found, (kernels, kernels), limits)


def _on_arrays(kernel: Callable[..., None], names: Sequence[str], graph: Mapping[str, Any]) -> Any:
    """Return a kernel that takes views of the machine's memory: only first rows of tables are there."""
    gathers = [node["gather"] for node in graph.values() if "gather" in node]

    def array(given: Any, rows: int | None) -> Array:  # DLPack does not hand over what nobody owns
        shape, dtype = tuple(given.shape), np.dtype(str(given.dtype))
        own = shape if rows is None else (rows, *shape[1:])
        memory = (ctypes.c_char * (max(1, int(np.prod(own))) * dtype.itemsize)).from_address(given.data_ptr())
        found = np.frombuffer(memory, dtype, int(np.prod(own))).reshape(own)
        if rows is None:
            return found
        whole = np.full(shape, np.nan, dtype)
        whole[:rows] = found
        return whole

    def run(*given: Any) -> None:
        read: dict[str, int] = {}
        for table, index in gathers:
            rows = given[names.index(table)].shape[0]  # past its end a kernel reads the last one
            most = min(rows, int(array(given[names.index(index)], None).max(initial=-1)) + 1)
            read[table] = max(most, read.get(table, 0))
        rows_read = [read.get(name) for name in names] + [None] * (len(given) - len(names))
        pairs = zip(given, rows_read, strict=True)
        kernel(*(array(one, many) if hasattr(one, "data_ptr") else one for one, many in pairs))

    return run


def as_torch(value: Any) -> Any:
    """Return a result of the machine's with tensors of PyTorch's."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, list | tuple):
        return type(value)(map(as_torch, value))
    return value


def form_of(function: Callable[..., Any], samples: list[Any]) -> dict[str, Any]:
    recording = Recording(function)
    recording.run(samples)
    return form_program(recording).form


def compiled(function: Callable[..., Any], samples: list[Any], given: list[Any] | None = None) -> list[Any]:
    """Return what the form of a function returns for instances."""
    run = FormRun(form_of(function, samples), [], lambda *_: [])
    return run.run([[one] for one in (samples if given is None else given)])


def _numbers(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_numbers, value))
    return value.constant if isinstance(value, Extent) else value


def _evaluated(value: Any, binding: Mapping[str, int] | None = None) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_evaluated(one, binding) for one in value)
    return parse_extent(value).evaluate(binding or {}) if isinstance(value, str) else value


def assert_same(found: Any, wanted: Any, of_tensors: bool = False) -> None:
    """Compare results: tensors closely, all else exactly; floats closely where they come of tensors."""
    if isinstance(wanted, list | tuple):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for own, right in zip(found, wanted, strict=True):
            assert_same(own, right, of_tensors)
    elif isinstance(wanted, dict):
        assert type(found) is dict
        assert list(found) == list(wanted)  # in their order, too
        for key, right in wanted.items():
            assert_same(found[key], right, of_tensors)
    elif hasattr(wanted, "dtype"):
        if wanted.ndim == 0 and not wanted.is_floating_point():
            assert int(found) == int(wanted)
            return
        right = wanted.detach().numpy()
        atol = 2e-5 * max(1.0, float(np.abs(right).max(initial=0)))
        np.testing.assert_allclose(np.asarray(found), right, rtol=0, atol=atol)
    elif hasattr(wanted, "__dict__"):
        for name, right in vars(wanted).items():
            own = found.fields[name] if hasattr(found, "fields") else getattr(found, name)
            assert_same(own, right, of_tensors)
    else:
        if of_tensors and isinstance(wanted, float):
            assert abs(found - wanted) <= 2e-5 * max(1.0, abs(wanted))
        else:
            assert found == wanted
        assert type(found) is type(wanted)
