"""How calls give inputs and get outputs: nested tuples, lists and dictionaries, as the exported program has
them.

    {"positional": [tree, …], "keyword": {name: tree, …}, "output": tree, "names": [name, …],
     "halves": {"inputs": {name: dtype}, "outputs": [dtype or null, …]}}

A tree is the name of an input or ``*`` for the next output, ``null``, ``{"tuple": [tree, …]}``,
``{"list": [tree, …]}``, a dictionary, ``{"dict": [[key, tree], …]}``, or a number, text or truth value,
``{"constant": 3}``, which calls have to repeat among the arguments. ``names`` are those of the positional
arguments, which calls may give by keyword, where they are known. ``halves`` has the inputs and outputs that
calls have in half precision, and the graph in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from dietcode.errors import TensorError
from dietcode.graph.tensor_type import HALVES, GraphError, TensorType
from dietcode.workload.text import clip

_MAX_DEPTH = 16
_MAX_KEY = 200
CONSTANTS = (bool, int, float, str)


def described_tree(
    inputs: Any,
    outputs: Any,
    names: Sequence[Any],
    results: Sequence[Any],
    arguments: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the signature of a program of PyTorch's.

    Parameters
    ----------
    inputs, outputs : torch.utils._pytree.TreeSpec
    names, results : sequence of tree
        For each leaf of the inputs its name, None, or a constant's tree; for each of the outputs ``*``, None
        or such a tree.
    arguments : sequence of str
        The names of the positional arguments, those of keywords after them; none where nobody knows them.
    """
    leaves = iter(names)
    positional, keyword = children_of(inputs)
    found: dict[str, Any] = {
        "positional": [_tree(one, leaves) for one in children_of(positional)],
        "keyword": {
            str(key): _tree(one, leaves)
            for key, one in zip(_keys(keyword), children_of(keyword), strict=True)
        },
        "output": _tree(outputs, iter(results)),
    }
    named = list(arguments[: len(found["positional"])])
    if len(set(named)) == len(found["positional"]):
        found["names"] = named
    return found


def _keys(spec: Any) -> Sequence[Any]:
    """Return the keys of a dictionary."""
    return list(spec.context or ())


def children_of(spec: Any) -> Sequence[Any]:
    """Return the children of a node of PyTorch's trees."""
    return list(spec.children() if hasattr(spec, "children") else spec.children_specs)  # before PyTorch 2.11


def _tree(spec: Any, leaves: Iterator[Any]) -> Any:
    kind = getattr(spec.type, "__name__", None)
    if spec.type is None:
        return next(leaves)
    if kind == "NoneType":
        return None
    inner = [_tree(one, leaves) for one in children_of(spec)]
    if spec.type in (tuple, list):
        return {kind: inner}
    keys = record_keys(spec)
    if keys is None:
        return {"tuple": inner}
    return {"dict": [[key, tree] for key, tree in zip(keys, inner, strict=True)]}


def record_keys(spec: Any) -> list[Any] | None:
    """Return the keys of a node of PyTorch's trees that is a dictionary or a record; None of a sequence."""
    keys = spec.context
    if spec.type is not dict:  # an OrderedDict, or a class that registered its fields
        keys = next(
            (one for one in (keys if isinstance(keys, list | tuple) else []) if isinstance(one, list)), keys
        )
    return keys if isinstance(keys, list) and len(keys) == len(children_of(spec)) else None


def input_names(signature: Mapping[str, Any]) -> list[str]:
    """Return the names of the inputs of a signature that anybody may have written.

    Raises
    ------
    GraphError
        It has another structure than signatures have.
    """
    positional, keyword = signature.get("positional"), signature.get("keyword")
    if not isinstance(positional, list) or not isinstance(keyword, dict):
        raise GraphError("allowed: positional, a list of trees, and keyword, a mapping to trees")
    for name in keyword:
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_KEY or not name.isprintable():
            raise GraphError(f"keyword {clip(name)}; allowed: 1 to {_MAX_KEY} printable characters")
    _check_names(signature.get("names"), len(positional))
    names = [name for tree in (*positional, *keyword.values()) for name in _tree_leaves(tree, 0)]
    if "*" in names:
        raise GraphError("*; allowed: names of inputs")
    return names


def _check_names(names: Any, num_positional: int) -> None:
    """Refuse names of positional arguments that no keyword can be; None: they have none."""
    if names is None:
        return
    if not isinstance(names, list) or len(names) != num_positional:
        raise GraphError(f"names {clip(names)}; allowed: a list of one for each positional argument")
    for name in names:
        fits = isinstance(name, str) and name.isidentifier() and len(name) <= _MAX_KEY
        if not fits or names.count(name) > 1:
            raise GraphError(f"name {clip(name)} of an argument; allowed: identifiers, each once")


def halves_of(inputs: Mapping[str, str], outputs: Sequence[str | None]) -> dict[str, Any]:
    """Return the part of a signature that says what has half precision; empty where nothing has."""
    if not inputs and not any(outputs):
        return {}
    return {"halves": {"inputs": dict(inputs), "outputs": list(outputs)}}


def half_inputs(signature: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtype of each input in half precision."""
    return dict(signature["halves"]["inputs"]) if "halves" in signature else {}


def half_outputs(signature: Mapping[str, Any]) -> list[str | None]:
    """Return the dtype of each output in half precision, None for others; empty where there is none."""
    return list(signature["halves"]["outputs"]) if "halves" in signature else []


def called_inputs(signature: Mapping[str, Any], types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Return the types of inputs as calls have them, for those of the graph."""
    halves = half_inputs(signature)
    return {name: replace(type_, dtype=halves.get(name, type_.dtype)) for name, type_ in types.items()}


def called_outputs(signature: Mapping[str, Any], types: Sequence[TensorType]) -> list[TensorType]:
    """Return the types of outputs as calls have them, for those of the graph."""
    halves = half_outputs(signature) or [None] * len(types)
    return [replace(type_, dtype=own or type_.dtype) for type_, own in zip(types, halves, strict=True)]


def check_halves(
    signature: Mapping[str, Any], inputs: Mapping[str, TensorType], outputs: Sequence[TensorType]
) -> None:
    """Refuse half precision of what the graph does not have in float32.

    Parameters
    ----------
    signature : mapping
    inputs, outputs : TensorType
        As the graph has them, inputs by name.

    Raises
    ------
    GraphError
        The signature says it of something else.
    """
    if "halves" not in signature:
        return
    given = signature["halves"]
    if (
        not isinstance(given, dict)
        or set(given) != {"inputs", "outputs"}
        or not isinstance(given["inputs"], dict)
        or not isinstance(given["outputs"], list)
        or len(given["outputs"]) != len(outputs)
    ):
        raise GraphError(f"halves {clip(given)}; allowed: inputs by name, and one of each output")
    own = [(half, inputs.get(name)) for name, half in given["inputs"].items()]
    own += [pair for pair in zip(given["outputs"], outputs, strict=True) if pair[0] is not None]
    if any(half not in HALVES or type_ is None or type_.dtype != "float32" for half, type_ in own):
        raise GraphError(f"halves {clip(given)}; allowed: {' or '.join(HALVES)}, of what is float32")


def num_outputs(tree: Any) -> int:
    """Return the number of leaves of the tree of the outputs, checked as `input_names` does."""
    names = list(_tree_leaves(tree, 0))
    if any(name != "*" for name in names):
        raise GraphError(f"{clip(names)}; allowed: * for each output")
    return len(names)


def _tree_leaves(tree: Any, depth: int) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
        return
    if tree is None:
        return
    if depth > _MAX_DEPTH or not isinstance(tree, dict) or len(tree) != 1:
        raise GraphError(f"given {clip(tree)}; allowed: a name, null, tuple, list or dict, {_MAX_DEPTH} deep")
    ((kind, inner),) = tree.items()
    if kind == "constant" and type(inner) in CONSTANTS and len(str(inner)) <= _MAX_KEY:
        return
    if kind not in ("tuple", "list", "dict") or not isinstance(inner, list):
        raise GraphError(f"given {clip(tree)}; allowed: a list in tuple, list or dict")
    if kind == "dict":
        for pair in inner:
            fits = isinstance(pair, list) and len(pair) == 2
            if not fits or type(pair[0]) not in (str, int) or len(str(pair[0])) > _MAX_KEY:
                raise GraphError(f"given {clip(pair)}; allowed: pairs of a key and a tree")
        inner = [pair[1] for pair in inner]
    for one in inner:
        yield from _tree_leaves(one, depth + 1)


def flatten_arguments(
    signature: Mapping[str, Any], positional: Sequence[Any], keyword: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the tensors of a call by the names of the inputs.

    Raises
    ------
    TensorError
        Arguments are missing, or too many, or another structure than the model was exported with.
    """
    trees, named = signature["positional"], signature["keyword"]
    labels = signature.get("names") or [_label(tree, number) for number, tree in enumerate(trees)]
    if len(positional) > len(trees):
        allowed = ", ".join([*labels, *named])
        raise TensorError(f"given {len(positional)} arguments; allowed: {allowed}")
    pairs = list(zip(labels, trees, positional, strict=False))
    rest = dict(keyword)
    for label, tree in zip(labels[len(positional) :], trees[len(positional) :], strict=True):
        key = tree if label not in rest and isinstance(tree, str) else label  # an input's own name serves too
        if key not in rest:
            raise TensorError(f"{label}: missing; the model takes {', '.join([*labels, *named])}")
        pairs.append((label, tree, rest.pop(key)))
    for name, tree in named.items():
        if name not in rest:
            raise TensorError(f"{name}: missing; the model takes {', '.join([*labels, *named])}")
        pairs.append((name, tree, rest.pop(name)))
    if rest:
        raise TensorError(f"{min(rest)}: unknown; the model takes {', '.join([*labels, *named])}")
    found: dict[str, Any] = {}
    for label, tree, given in pairs:
        try:
            _collect(tree, given, found, 0)
        except TensorError as error:
            raise TensorError(f"{label}: {error}") from None
    return found


def _label(tree: Any, number: int) -> str:
    return tree if isinstance(tree, str) else f"argument {number}"


def _collect(tree: Any, given: Any, found: dict[str, Any], depth: int) -> None:
    if isinstance(tree, str):
        found[tree] = given
        return
    if tree is None or depth > _MAX_DEPTH:
        if given is not None:
            raise TensorError("given a value where the model was exported with None")
        return
    ((kind, inner),) = tree.items()
    if kind == "constant":
        if type(given) is not type(inner) or given != inner:
            raise TensorError(f"given {clip(given)}; allowed: {clip(inner)}, as the model was exported")
        return
    if kind == "dict":
        wanted, kind = [key for key, _ in inner], type(given).__name__
        if is_dataclass(given):  # fields that are None are no keys
            held = {one.name: getattr(given, one.name) for one in fields(given)}
            given = {key: value for key, value in held.items() if key in wanted or value is not None}
        if not isinstance(given, Mapping) or set(given) != set(wanted):
            raise TensorError(f"given {kind}; allowed: a dictionary of {', '.join(map(str, wanted))}")
        for key, one in inner:
            _collect(one, given[key], found, depth + 1)
        return
    if not isinstance(given, tuple | list) or len(given) != len(inner):
        size = f" of {len(given)}" if isinstance(given, tuple | list) else ""
        raise TensorError(f"given {type(given).__name__}{size}; allowed: a {kind} of {len(inner)}")
    for one, value in zip(inner, given, strict=True):
        _collect(one, value, found, depth + 1)


def built_output(tree: Any, leaves: Iterator[Any]) -> Any:
    """Return the tree of outputs with its leaves filled in."""
    if isinstance(tree, str):
        return next(leaves)
    if tree is None:
        return None
    ((kind, inner),) = tree.items()
    if kind == "constant":
        return inner
    if kind == "dict":
        return {key: built_output(one, leaves) for key, one in inner}
    make: Callable[[Any], Any] = tuple if kind == "tuple" else list
    return make(built_output(one, leaves) for one in inner)
