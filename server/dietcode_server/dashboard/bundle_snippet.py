"""Python that pulls a whole model, recursion or program, and calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dietcode.workload.quotient import parse_dim

_MAX_INPUTS = 40
_USUAL = 16  # of a wide range: inputs stay small
_FLOATS = frozenset({"float32", "float64"})
_RANDOM = "rng = np.random.default_rng()"


def bundle_snippet(workload: Mapping[str, Any], num_weights: int, name: str, ref: str, server: str) -> str:
    """The code: for a model and a recursion it runs as pasted; for a program it takes the reader's instances.

    Parameters
    ----------
    workload : mapping
        What the job was about: a graph, a recursion or a program, as data.
    num_weights : int
        Of the bundle; the file of weights is named where there are any.
    name, ref : str
        Of the bundle, and ``NAME@VERSION``.
    server : str
        Its URL.

    Raises
    ------
    KeyError, TypeError, ValueError, SpecError
        The workload describes no call.
    """
    if "form" in workload:
        kind, imports, lines = "program", [], _program(workload)
    else:
        kind, imports = "model", ["import numpy as np", ""]
        lines = _recursion(workload) if "children" in workload else _model(workload)
    weights = f', weights="{name}.safetensors"' if num_weights else ""
    pull = f'{kind} = dietcode.pull("{ref}", server="{server}"{weights})'
    said = [f"# {name}.safetensors is the file that `dietcode submit` wrote"] if weights else []
    return "\n".join([*imports, "import dietcode", "", *said, pull, *lines]) + "\n"


def _model(graph: Mapping[str, Any]) -> list[str]:
    sizes = {n: min(int(r["max"]), max(int(r["min"]), _USUAL)) for n, r in graph["dimensions"].items()}
    signature, inputs = graph["signature"], graph["inputs"]
    trees = [*signature["positional"], *signature["keyword"].values()]
    names = [name for tree in trees for name in _inputs_of(tree)]
    if len(names) > _MAX_INPUTS or not all(map(str.isidentifier, [*names, *signature["keyword"]])):
        raise ValueError(f"{len(names)} inputs; allowed: {_MAX_INPUTS}, whose names are identifiers")
    lines = [_RANDOM, *(_input(name, inputs[name], sizes) for name in names)]
    arguments = [_argument(tree) for tree in signature["positional"]]
    arguments += [f"{keyword}={_argument(tree)}" for keyword, tree in signature["keyword"].items()]
    at = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    return [*lines, "", f"outputs = model({', '.join(arguments)})" + (f"  # {at}" if at else "")]


def _recursion(recursion: Mapping[str, Any]) -> list[str]:
    width, x = int(recursion["children"]), recursion["x"]
    none = [-1] * width
    rows = [none, [0], [1]] if width == 1 else [none, none, [0, 1, *none[2:]]]
    what = "a sequence of three" if width == 1 else "two leaves and their parent"
    structure = f"structure = dietcode.Structure({rows})  # {what}; -1 where there is no child"
    if x is None:
        return [structure, "", "states = model(structure)  # of the roots"]
    made = 'np.zeros(3, dtype="int64")' if x == [] else _array([3, *x], "float32")
    given = [*([_RANDOM] if x else []), structure, f"x = {made}  # a row for each node"]
    return [*given, "", "states = model(structure, x)  # of the roots"]


def _program(program: Mapping[str, Any]) -> list[str]:
    form = program["form"]
    entry = form["functions"][form["entry"]]
    many = int(entry["parameters"])
    each = f"what `{entry['name']}` takes" if many == 1 else f"tuples of what `{entry['name']}` takes"
    return [f"instances = []  # yours: {each}", "results = program(instances)  # one for each instance"]


def _inputs_of(tree: Any) -> Iterator[str]:
    """The inputs in a tree of `dietcode.graph.signature`, in its order."""
    if isinstance(tree, str):
        yield tree
    elif tree is not None:
        ((kind, inner),) = tree.items()
        for one in () if kind == "constant" else inner:
            yield from _inputs_of(one[1] if kind == "dict" else one)


def _argument(tree: Any) -> str:
    """What a call gives for such a tree."""
    if tree is None or isinstance(tree, str):
        return "None" if tree is None else _local(tree)
    ((kind, inner),) = tree.items()
    if kind == "constant":
        return repr(inner)
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {_argument(one)}" for key, one in inner) + "}"
    given = ", ".join(map(_argument, inner))
    return f"[{given}]" if kind == "list" else f"({given}{',' if len(inner) == 1 else ''})"


def _input(name: str, type_: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    shape = [int(parse_dim(str(one), name).evaluate(dict(sizes))) for one in type_["shape"]]
    return f"{_local(name)} = {_array(shape, str(type_['dtype']))}  # [{', '.join(map(str, type_['shape']))}]"


def _local(name: str) -> str:
    """The variable of an input; one of the snippet's own names gets an underscore."""
    return f"{name}_" if name in {"np", "rng", "model", "outputs", "dietcode"} else name


def _array(shape: Sequence[int], dtype: str) -> str:
    text = f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"
    if dtype in _FLOATS:
        return f'rng.standard_normal({text}, dtype="{dtype}")'
    return f'np.zeros({text}, dtype="{dtype}")'
