"""Blocks in a spec: read, written, put together, and refused with the field that is wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from dietcode.errors import SpecError
from dietcode.workload.check import check_text
from dietcode.workload.expansion import REDUCTIONS, expand
from dietcode.workload.identity import workload_digest
from dietcode.workload.operators import OPERATORS
from dietcode.workload.parse import load_spec, spec_from_data
from dietcode.workload.sizes import largest_sizes

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = (
    *("softmax", "layernorm", "add-rmsnorm", "pointwise"),
    *("swiglu", "qkv", "lstm-cell", "gru-cell"),
    *("attention", "attention-decode"),
    *("maxpool", "rotary", "cache-rows"),
)
OF_TENSORS = {"einsum", "gather", "relabel", "slice", "maxpool", "avgpool", "rotate", "hide", "transpose"}
DATA: dict[str, Any] = {
    "name": "block",
    "op": {
        "block": {
            "version": 1,
            "graph": {
                "S": {"add": ["X", "R"]},
                "T": {"mul": ["S", 0.5]},
                "Y": {"layernorm": ["T", "gamma"], "axis": "n"},
            },
            "outputs": ["S", "Y"],
        }
    },
    "tensors": {
        "X": {"dims": "mn", "dtype": "float32"},
        "R": {"dims": "mn", "dtype": "float32"},
        "gamma": {"dims": "n", "dtype": "float32", "constant": True},
    },
    "shape_vars": {"M": {"min": 1, "max": 64}},
    "dims": {"m": "M", "n": 48},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The block with one field replaced, or deleted where the value is `DATA`."""
    data = copy.deepcopy(DATA)
    *outer, last = path.split(".")
    at: Any = data
    for key in outer:
        at = at[int(key) if isinstance(at, list) else key]
    if value is DATA:
        del at[last]
    else:
        at[int(last) if isinstance(at, list) else last] = value
    return data


def test_tensors_have_the_names_that_parameters_have() -> None:
    data = copy.deepcopy(DATA)
    data["op"]["block"]["graph"]["Y"]["layernorm"] = ["T", "weight", "bias"]
    del data["tensors"]["gamma"]
    parameter = {"dims": "n", "dtype": "float32", "constant": True}
    data["tensors"] |= {"weight": parameter, "bias": parameter}
    assert list(spec_from_data(data).tensors) == ["X", "R", "weight", "bias"]
    data["shape_vars"]["weight"] = {"min": 1, "max": 3}
    with pytest.raises(SpecError) as caught:
        spec_from_data(data)
    assert caught.value.field == "shape_vars.weight" and "a reserved word of instances" in str(caught.value)


GRAPH = "op.block.graph"
REFUSALS = [
    (
        f"{GRAPH}.T",
        {"mull": ["S", 0.5]},
        f"{GRAPH}.T",
        "allowed: one of einsum, gather, relabel,",
    ),
    (f"{GRAPH}.T", {"mull": ["S", 0.5]}, f"{GRAPH}.T", "did you mean 'mul'?"),
    (f"{GRAPH}.T", {"conv": ["S", "R"]}, f"{GRAPH}.T", "given ['conv']; allowed: one of einsum"),
    (
        f"{GRAPH}.T",
        {"mul": ["S", 2], "add": ["S", 1]},
        f"{GRAPH}.T",
        "given mul and add; allowed: one operator",
    ),
    (f"{GRAPH}.T", "S", f"{GRAPH}.T", "given 'S'; allowed: a mapping of an operator"),
    (f"{GRAPH}.T", {"mul": ["S"]}, f"{GRAPH}.T.mul", "given 1 operands; allowed: 2: a, b"),
    (f"{GRAPH}.T", {"mul": ["S", True]}, f"{GRAPH}.T.mul.1", "given True; allowed: the name of a tensor"),
    (f"{GRAPH}.T", {"mul": ["S", 1e31]}, f"{GRAPH}.T.mul.1", "a number up to 1e30"),
    (
        f"{GRAPH}.T",
        {"mul": ["s", 2]},
        f"{GRAPH}.T.mul.0",
        "given 's'; allowed: a tensor or a node: X, R, gamma, S",
    ),
    (f"{GRAPH}.T", {"mul": [2, 3]}, f"{GRAPH}.T.mul", "given numbers alone"),
    (f"{GRAPH}.T", {"mul": ["Y", 2]}, f"{GRAPH}.T", "depends on itself"),
    (f"{GRAPH}.T", {"mul": ["S", 2], "axis": "n"}, f"{GRAPH}.T.axis", "unknown field; allowed: mul"),
    (f"{GRAPH}.Y.axis", "z", f"{GRAPH}.Y.axis", "given 'z'; allowed: an index of mn"),
    (
        f"{GRAPH}.Y.axis",
        "nm",
        f"{GRAPH}.Y.axis",
        "given 'nm'; allowed: an index of mn, or several",
    ),
    (f"{GRAPH}.Y.axis", 3, f"{GRAPH}.Y.axis", "given 3; allowed: the letter of an index"),
    (f"{GRAPH}.Y.axis", DATA, f"{GRAPH}.Y.axis", "missing; layernorm needs it"),
    (f"{GRAPH}.Y.eps", 0, f"{GRAPH}.Y.eps", "given 0; allowed: a number above 0"),
    (f"{GRAPH}.Y.layernorm", ["T", "X", "R", "T"], f"{GRAPH}.Y.layernorm", "allowed: 1 to 3: x, gamma, beta"),
    (f"{GRAPH}.Y.layernorm", ["gamma", "T"], f"{GRAPH}.Y.layernorm", "its first operand has the indices n"),
    (f"{GRAPH}.T", {"clip": "S"}, f"{GRAPH}.T", "missing; clip needs low or high, or both"),
    (f"{GRAPH}.Z", {"exp": "X"}, f"{GRAPH}.Z", "no output needs it"),
    (f"{GRAPH}.X", {"exp": "R"}, f"{GRAPH}.X", "already used by tensors.X"),
    (f"{GRAPH}.class", {"exp": "R"}, f"{GRAPH}.class", "a Python identifier"),
    ("op.block.version", 2, "op.block.version", "given 2; allowed: 1"),
    ("op.block.output", ["Y"], "op.block.output", "unknown field; allowed: version, graph, outputs"),
    ("op.block.outputs", [], "op.block.outputs", "given none; allowed: at least one node"),
    ("op.block.outputs", ["Q"], "op.block.outputs.0", "given 'Q'; allowed: a node: S, T, Y"),
    ("op.block.outputs", ["S", "S"], "op.block.outputs.1", "given twice"),
    ("op.block.graph", {}, "op.block.graph", "given {}; allowed: a mapping of 1 to 256 names"),
    ("op.epilogue", ["relu"], "op", "given a block and an epilogue"),
    ("op.einsum", "mk,nk->mn", "op", "given both; allowed: exactly one of einsum, conv2d, conv1d, block"),
    (
        "output",
        {"name": "Y", "dtype": "float32"},
        "output",
        "given beside a block; allowed: its results in op",
    ),
    ("tensors.Q", {"dims": "m", "dtype": "float32"}, "tensors.Q", "no node reads it"),
    ("tensors.R.dims", "nm", f"{GRAPH}.S.add", "given operands of mn, nm; allowed: one operand with all"),
    ("tensors.R.dims", "mm", "tensors.R.dims", "given 'mm'; allowed: 1 to 6 letters, each once"),
    ("tensors.X.dtype", "float16", "tensors.X.dtype", "allowed on this target: float32"),
    ("tensors", {}, "tensors", "given 0 tensors; allowed: 1 to 32"),
    ("dims.k", 3, "dims.k", "not an index of block of add, mul, layernorm"),
]


@pytest.mark.parametrize(("path", "value", "field", "said"), REFUSALS)
def test_refusals(path: str, value: Any, field: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_data(changed(path, value))
    assert caught.value.field == field
    assert said in caught.value.problem and "\n" not in str(caught.value)


def test_two_axes_are_refused() -> None:
    data = changed(f"{GRAPH}.Y", {"sum": "T", "axis": "mn"})
    data["op"]["block"]["graph"] |= {"Z": {"mean": "T", "axis": "n"}, "W": {"mul": ["Y", "Z"]}}
    data["op"]["block"]["outputs"] = ["S", "W"]
    del data["tensors"]["gamma"]
    with pytest.raises(
        SpecError, match=r"graph\.[YZ]\.axis: given '(n|mn)'; allowed: (n|mn), as other nodes"
    ):
        spec_from_data(data)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_read_and_written(name: str) -> None:
    spec = load_spec(ROOT / "examples" / f"{name}.yaml")
    assert spec_from_data(spec.to_json()) == spec
    assert "output" not in spec.to_json() and "epilogue" not in spec.to_json()["op"]


def test_grid_order_and_outputs() -> None:
    spec = spec_from_data(DATA)
    graph = spec.block
    assert graph is not None
    assert (graph.rows, graph.columns, list(graph.nodes)) == ("m", "n", ["S", "T", "Y"])
    assert spec.outputs == {"S": "mn", "Y": "mn"}
    assert largest_sizes(spec).tensor_bytes == 4 * (4 * 64 * 48 + 48)


def test_order_of_the_graph_does_not_matter() -> None:
    other = copy.deepcopy(DATA)
    graph = other["op"]["block"]["graph"]
    other["op"]["block"]["graph"] = dict(reversed(graph.items()))
    assert workload_digest(spec_from_data(other)) == workload_digest(spec_from_data(DATA))
    swapped = changed("op.block.outputs", ["Y", "S"])
    assert workload_digest(spec_from_data(swapped)) != workload_digest(spec_from_data(DATA))


def test_pointwise_blocks_are_flat() -> None:
    data = changed(f"{GRAPH}.Y", {"tanh": "T"})
    del data["tensors"]["gamma"]
    graph = spec_from_data(data).block
    assert graph is not None and (graph.rows, graph.columns) == ("", "mn")


def test_flops_are_primitives_of_each_element() -> None:
    data = changed(f"{GRAPH}.Y", {"softmax": "T", "axis": "n"})
    del data["tensors"]["gamma"]
    # add, mul, max, sub, exp, sum, mul of each element; finite, reciprocal of each row
    assert largest_sizes(spec_from_data(data)).flops == 64 * (7 * 48 + 2)


@pytest.mark.parametrize("word", [word for word in OPERATORS if word not in OF_TENSORS])
def test_every_operator_is_read_and_written_out(word: str) -> None:
    operator = OPERATORS[word]
    operands = ["X", "R", "X"][: len(operator.operands)]
    node: dict[str, Any] = {word: operands} | ({"axis": "n"} if "axis" in operator.attributes else {})
    node |= {"low": 0} if word == "clip" else {}
    data = changed("op.block.graph", {"Y": node})
    data["op"]["block"]["outputs"] = ["Y"]
    del data["tensors"]["gamma"]
    if "R" not in operands:
        del data["tensors"]["R"]
    graph = spec_from_data(data).block
    assert graph is not None
    primitives = expand(graph.nodes, graph.indices)
    assert primitives[-1].name == "Y" and primitives[-1].indices == ("m" if operator.reduces else "mn")
    assert any(p.kind in REDUCTIONS for p in primitives) == operator.along_row


POOL: dict[str, Any] = {"maxpool": "X", "dims": "npqc", "window": 3, "strides": 2, "padding": 1}
ROTATE: dict[str, Any] = {"rotate": "X", "axis": "c", "by": 8}


def of_image(node: dict[str, Any], more: dict[str, Any] | None = None, **dims: Any) -> dict[str, Any]:
    """A block of an image X [n, h, w, c]; other nodes end in Y."""
    return {
        "name": "image",
        "op": {"block": {"version": 1, "graph": {"Y": node, **(more or {})}, "outputs": ["Y"]}},
        "tensors": {"X": {"dims": "nhwc", "dtype": "float32"}},
        "shape_vars": {"B": {"min": 1, "max": 4}},
        "dims": {"n": "B", "h": 57, "w": 56, "c": 64} | dims,
    }


def test_positions_of_windows_follow() -> None:
    spec = spec_from_data(of_image(POOL, h="B"))
    assert spec.block is not None and (spec.block.rows, spec.block.columns) == ("npq", "c")
    assert {k: str(spec.dims_parsed[k]) for k in "pq"} == {"p": "(B + 1)//2", "q": "28"}
    assert spec.outputs == {"Y": "npqc"}
    line = spec_from_data(of_image({"avgpool": "X", "dims": "nhqc", "window": [5], "padding": [2, 0]}))
    assert str(line.dims_parsed["q"]) == "54"
    # nine loads are combined by eight operations of each element
    assert largest_sizes(spec).flops == 4 * 2 * 28 * 64 * 8


@pytest.mark.parametrize(
    ("data", "field", "said"),
    [
        (
            of_image(POOL | {"dims": "npq"}),
            f"{GRAPH}.Y",
            "given dims 'npq'; allowed: 'nhwc' with other",
        ),
        (of_image(POOL | {"dims": "nhwc"}), f"{GRAPH}.Y", "with other letters for the 1 or 2 axes"),
        (of_image(POOL | {"dims": "nhwk"}), f"{GRAPH}.Y", "not the last one"),
        (of_image(POOL | {"dims": "nwhc"}), f"{GRAPH}.Y", "with other letters"),
        (of_image(POOL | {"dims": "mpqc"}), f"{GRAPH}.Y", "1 or 2 axes"),
        (of_image(POOL | {"window": 9}), f"{GRAPH}.Y", "a window of 81 elements; allowed: at most 64"),
        (of_image(POOL | {"window": 0}), f"{GRAPH}.Y.window", "given 0; allowed: an integer from 1 to 32768"),
        (of_image(POOL | {"window": [3, 3, 3]}), f"{GRAPH}.Y", "given 3 numbers of window; allowed: 1 or 2"),
        (of_image(POOL | {"strides": 0}), f"{GRAPH}.Y.strides", "given 0; allowed: an integer from 1"),
        (of_image(POOL | {"strides": 1.5}), f"{GRAPH}.Y.strides", "given 1.5; allowed: an integer from 1"),
        (
            of_image(POOL | {"padding": [1, 1, 1]}),
            f"{GRAPH}.Y",
            "allowed: 1 or 2, or 4, before and after",
        ),
        (of_image(POOL | {"padding": 3}), f"{GRAPH}.Y", "a padding of 3; allowed: less than the window of 3"),
        (of_image(POOL | {"padding": -1}), f"{GRAPH}.Y.padding", "given -1; allowed: an integer from 0"),
        (of_image(POOL | {"count_include_pad": True}), f"{GRAPH}.Y.count_include_pad", "unknown field"),
        (
            of_image({"avgpool": "X", "dims": "npqc", "window": 2, "count_include_pad": 1}),
            f"{GRAPH}.Y.count_include_pad",
            "given 1; allowed: true or false",
        ),
        (
            of_image(POOL | {"maxpool": "Z"}, {"Z": {"relu": "X"}}),
            f"{GRAPH}.Y.maxpool.0",
            "given 'Z'; allowed: a tensor",
        ),
        (of_image(POOL, p=28), "dims.p", "not an index of block of maxpool; allowed: c, h, n, w"),
        (of_image(POOL | {"padding": 0}, h="B"), "dims.h", "an output of extent 0 at the smallest shape"),
        (
            of_image(
                {"add": ["A", "M"]},
                {"A": POOL, "M": {"maxpool": "X", "dims": "npqc", "window": 2, "strides": 2}},
            ),
            f"{GRAPH}.M.dims",
            "p is 28 here and 29 elsewhere; allowed: the same",
        ),
        (of_image(ROTATE | {"axis": "w"}), f"{GRAPH}.Y.axis", "given 'w'; allowed: the last index of nhwc"),
        (of_image(ROTATE | {"by": 64}), f"{GRAPH}.Y.by", "given 64; allowed: 1 to 63"),
        (of_image(ROTATE, c=1), f"{GRAPH}.Y.by", "given 8; allowed: an axis of more than one element"),
        (of_image(ROTATE | {"by": 0}), f"{GRAPH}.Y.by", "given 0; allowed: an integer from 1"),
        (
            of_image(ROTATE | {"within": 1}),
            f"{GRAPH}.Y.within",
            "given 1; allowed: an integer from 2 to 32768",
        ),
        (of_image(ROTATE | {"within": 8}), f"{GRAPH}.Y.by", "given 8; allowed: 1 to 7"),
        (
            of_image(ROTATE | {"by": 1, "within": 65}),
            f"{GRAPH}.Y.within",
            "given 65; allowed: 2 to 64, the extent of c",
        ),
        (of_image(ROTATE, c="B"), "dims.c", "given 'B'; allowed: a number, for Y rotates along it"),
        (
            of_image(ROTATE | {"rotate": "Z"}, {"Z": {"relu": "P"}, "P": ROTATE}),
            f"{GRAPH}.Y.rotate.0",
            "given 'Z', which has rotate in it; allowed: no window, rotation or hidden column",
        ),
        (
            of_image(ROTATE | {"rotate": "P"}, {"P": {"softmax": "X", "axis": "c", "causal": "w"}}),
            f"{GRAPH}.Y.rotate.0",
            "given 'P', which has a causal mask in it",
        ),
        (
            of_image(ROTATE | {"rotate": "T"}, {"T": {"transpose": "X", "dims": "ncwh"}}, h=64),
            f"{GRAPH}.Y.axis",
            "given 'c'; allowed: the last index of ncwh",
        ),
        (
            of_image(
                {"mul": ["N", "G"]},
                {"N": {"layernorm": "X", "axis": "hwc"}, "G": {"mean": "X", "axis": "w"}},
            ),
            f"{GRAPH}.N.axis",
            "given 'hwc'; allowed: w, as other nodes have it",
        ),
    ],
)
def test_refusals_of_windows_and_rotations(data: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_data(data)
    assert caught.value.field == field
    assert said in caught.value.problem and "\n" not in str(caught.value)


def into(outputs: Any, graph: dict[str, Any] | None = None, **tensors: str) -> dict[str, Any]:
    """A block of X [m, n], tables T [t, n] and U [u, n], and positions at [m]."""
    dims = {"X": "mn", "T": "tn", "at": "m"} | tensors
    return {
        "name": "into",
        "op": {"block": {"version": 1, "graph": graph or {"Y": {"relu": "X"}}, "outputs": outputs}},
        "tensors": {k: {"dims": v, "dtype": "int32" if k == "at" else "float32"} for k, v in dims.items()},
        "shape_vars": {"M": {"min": 1, "max": 4}},
        "dims": {k: {"m": "M", "n": 24}.get(k, 30) for k in sorted(set("".join(dims.values())))},
    }


def test_an_output_into_a_table_is_the_table() -> None:
    spec = spec_from_data(into([{"Y": {"into": "T", "at": "at"}}]))
    assert spec.outputs == {"Y": "tn"} and spec.output.name == "Y"
    assert spec.block is not None and spec.block.into == {"Y": ("T", "at")}
    assert spec.to_json()["op"]["block"]["outputs"] == [{"Y": {"into": "T", "at": "at"}}]
    assert spec_from_data(spec.to_json()) == spec
    plain = into(["Y"])
    del plain["tensors"]["T"], plain["tensors"]["at"], plain["dims"]["t"]
    assert workload_digest(spec) != workload_digest(spec_from_data(plain))


ROWS = {"into": "T", "at": "at"}
AT = "op.block.outputs.0"


@pytest.mark.parametrize(
    ("data", "field", "said"),
    [
        (into("Y"), "op.block.outputs", "given 'Y'; allowed: a list"),
        (into([3]), AT, "given 3; allowed: the name of a node, or {NODE: {into: TABLE, at: POSITIONS}}"),
        (into([{"Y": {"into": "T"}}]), AT, "allowed: the name of a node, or"),
        (into([{"Y": {"into": "T", "at": 3}}]), AT, "allowed: the name of a node, or"),
        (into([{"Y": ROWS, "X": ROWS}]), AT, "allowed: the name of a node, or"),
        (into([{"Z": ROWS}]), AT, "given 'Z'; allowed: a node: Y"),
        (into([{"Y": {"into": "Y", "at": "at"}}]), f"{AT}.Y.into", "given 'Y'; allowed: a tensor"),
        (into([{"Y": {"into": "T", "at": "Y"}}]), f"{AT}.Y.at", "given 'Y'; allowed: a tensor"),
        (into([{"Y": ROWS}], T="nt"), f"{AT}.Y.into", "T has the indices nt; allowed: an index of its own"),
        (into([{"Y": ROWS}], T="tmn"), f"{AT}.Y.into", "T has the indices tmn; allowed: an index of its own"),
        (into([{"Y": ROWS}], T="tk"), f"{AT}.Y.into", "k is 30 and n is 24; allowed: the same extents"),
        (into([{"Y": ROWS}], T="mn"), f"{AT}.Y.into", "T has the indices mn; allowed: an index of its own"),
        (
            into([{"m": ROWS}], {"m": {"mean": "X", "axis": "n"}}),
            f"{AT}.m",
            "m has the indices m; allowed: rows and n",
        ),
        (
            into([{"Y": ROWS}], {"Y": {"softmax": "X", "axis": "n"}}, X="bmn"),
            f"{AT}.Y.at",
            "at has the indices m; allowed: bm, a position for each row of Y",
        ),
        (
            into([{"Y": ROWS}, {"Z": ROWS}], {"Y": {"relu": "X"}, "Z": {"exp": "X"}}),
            "op.block.outputs.1.Z.into",
            "and each table once",
        ),
        (
            into(
                [{"P": ROWS}, "Y"],
                {"P": {"einsum": ["X", "W"], "dims": "mk"}, "Y": {"softmax": "P", "axis": "k"}},
                W="kn",
                T="tk",
            ),
            f"{AT}.P",
            "P is read after a reduction; allowed: outputs that nothing of it reads",
        ),
    ],
)
def test_refusals_of_tables(data: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_data(data)
    assert caught.value.field == field
    assert said in caught.value.problem and "\n" not in str(caught.value)


def test_positions_of_a_table_are_integers() -> None:
    data = into([{"Y": ROWS}])
    data["tensors"]["at"]["dtype"] = "float32"
    with pytest.raises(SpecError, match=r"tensors.at.dtype: given 'float32'; allowed .*: int32, positions"):
        spec_from_data(data)


def test_what_reads_windows_has_no_products() -> None:
    data = of_image({"einsum": ["X", "W"], "dims": "nhwk"}, {"R": ROTATE, "M": {"sum": "R", "axis": "c"}})
    data["op"]["block"]["outputs"] = ["Y", "M"]
    data["tensors"]["W"] = {"dims": "kc", "dtype": "float32"}
    data["dims"]["k"] = 8
    with pytest.raises(SpecError, match="given rotate; allowed: only in a block without a product"):
        spec_from_data(data)


def test_position_of_what_is_wrong() -> None:
    text = (ROOT / "examples" / "layernorm.yaml").read_text().replace("axis: n", "axis: z")
    (problem,) = check_text(text).problems
    assert problem.field == "op.block.graph.Y.axis"
    assert text.splitlines()[problem.line - 1].lstrip().startswith("Y:")
