"""The cases that the package ``onnx`` ships: each gives the right outputs or is refused by a sentence."""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph
from onnx_runs import Array, import_model, onnx

from dietcode.errors import ModelError
from dietcode.models.importing.onnx.file import load_onnx

nodes: Any = pytest.importorskip("onnx.backend.test.case.node")
numpy_helper = onnx.numpy_helper
HALVES = ("float16", "bfloat16")
MOST = 5000  # what `run_graph` finds the value of a dimension below
MODULES = sorted(one.name for one in pkgutil.iter_modules(nodes.__path__))
PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
(TABLE,) = re.findall(r"\| operators of ONNX \| with \|\n((?:\|.*\n)+)", PAGE)
SUPPORTED = set(re.findall(r"`([A-Z]\w+)`", "".join(line.split("|")[1] for line in TABLE.splitlines())))
# Why a case is refused in every form. Operators that the page lists may be refused for these reasons alone.
REFUSED = {
    "Attention": r"its scores, or lengths of keys|softcap|left_window_size|causal queries",
    "BatchNormalization": "training mode",
    "Dropout": "training mode",
    "GridSample": "cubic interpolation",
    "Loop": "stacks what each of unknown many rounds gives",
    "Pow": "powers of int",
    "Resize": "antialias|exclude_outside|tf_crop_and_resize|keep_aspect_ratio_policy|to whole sizes",
    "Scan": "Scan of version 8",
}
ANYWHERE = r"dtype (object|u?int\d+|float\w+); allowed|an input without a shape|operators of version [01];"
CAN_WAIT = "depends on values"  # what the other forms of a case have as constants


def _cases(module: str) -> list[Any]:
    """Return the cases that a module makes as it is imported."""
    name, first = f"{nodes.__name__}.{module}", len(nodes._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(name)
    return [one for one in nodes._NodeTestCases[first:] if one.model is not None]


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [numpy_helper.to_array(one) if isinstance(one, onnx.TensorProto) else one for one in values]


def _forms(model: Any, arrays: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield a model whose operands are inputs, constants where they are small, or all constants but one."""
    names = list(arrays)
    tensors = all(isinstance(one, np.ndarray | np.generic) for one in arrays.values())
    small = [name for name in names[1:] if tensors and np.ndim(arrays[name]) < 2]
    for fixed in dict.fromkeys(((), tuple(small), tuple(names[1:] if tensors else ()))):
        form = onnx.ModelProto()
        form.CopyFrom(model)
        kept = [one for one in form.graph.input if one.name not in fixed]
        del form.graph.input[:]
        form.graph.input.extend(kept)
        form.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(arrays[name]), name) for name in fixed
        )
        yield form, {name: one for name, one in arrays.items() if name not in fixed}


def _named(form: Any, given: Mapping[str, Any]) -> tuple[Any, tuple[int, int]] | None:
    """Return a model with a dimension in the place of the largest extent, wherever inputs have it."""
    dims = [dim for one in form.graph.input for dim in one.type.tensor_type.shape.dim]
    most = max((dim.dim_value for dim in dims), default=0)
    if not 2 <= most < MOST or not all(isinstance(one, np.ndarray) for one in given.values()):
        return None
    dynamic = onnx.ModelProto()
    dynamic.CopyFrom(form)
    for one in dynamic.graph.input:
        for dim in one.type.tensor_type.shape.dim:
            if dim.dim_value == most:
                dim.dim_param = "D"
    return dynamic, (1, most + 3)


def _outputs(model: Any, given: Mapping[str, Any], folder: Path, **ranges: tuple[int, int]) -> list[Array]:
    path = folder / "case.onnx"
    path.write_bytes(model.SerializeToString())
    graph, weights = import_model(load_onnx(path), **ranges)
    inputs = {name: np.asarray(one) for name, one in given.items()}
    widened = {name: one.astype(np.float32) for name, one in inputs.items() if str(one.dtype) in HALVES}
    return run_graph(graph, weights, inputs | widened)


def _check(found: Sequence[Array], case: Any) -> None:
    for own, right in zip(found, _arrays(case.data_sets[0][1]), strict=True):
        is_half = str(right.dtype) in HALVES
        assert str(own.dtype) == ("float32" if is_half else str(right.dtype)) and own.shape == right.shape
        if own.dtype.kind == "f":
            least = 1e-2 if is_half else 1e-6
            relative = max(case.rtol, least if is_half else 0)
            np.testing.assert_allclose(
                own, right.astype(own.dtype), rtol=relative, atol=max(case.atol, least)
            )
        else:
            np.testing.assert_array_equal(own, right)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sampled(keep=90)
@pytest.mark.parametrize("module", MODULES)
def test_cases_of_the_package(module: str, tmp_path: Path) -> None:
    for case in _cases(module):
        arrays = dict(
            zip([one.name for one in case.model.graph.input], _arrays(case.data_sets[0][0]), strict=False)
        )
        problems, computed = [], False
        for form, given in _forms(case.model, arrays):
            try:
                _check(_outputs(form, given, tmp_path), case)
                computed = True
            except ModelError as error:
                problems.append(str(error))
            named = _named(form, given)
            if named is not None:
                try:
                    found = _outputs(named[0], given, tmp_path, D=named[1])
                except ModelError as error:
                    assert "\n" not in str(error) and "does not take" not in str(error), case.name
                else:
                    _check(found, case)
        words = {one.op_type for one in case.model.graph.node}
        unknown = {word for one in problems for word in re.findall(r"(\w+): not known", one)}
        assert not unknown & SUPPORTED, case.name
        reasons = [rf": .*({REFUSED[word]})" for word in words if word in REFUSED]
        expected = "|".join([ANYWHERE, r": not known", *reasons])
        left = [one for one in problems if CAN_WAIT not in one]
        assert computed or unknown or all(re.search(expected, one) for one in left), (case.name, problems)
        assert computed or problems, case.name
