"""The dimensions of an exported program: PyTorch's symbols, their names and ranges, and which are equal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import parse_extent
from dietcode.models.importing.refusals import unknown_range

_KEY, _OWN_EXAMPLES = "dietcode_dimensions", "dietcode_own_examples"
_NAME = re.compile(r"[^A-Za-z0-9_]")
_SIZE = re.compile(r"L((?:\['\w+'\]|\[\d+\])+)\.size\(\)\[(\d+)\]")
_FLAT = "flat_args"
_PART = re.compile(r"\['?(\w+)'?\]")


class Dimensions:
    """The dimensions of a program.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    guards : sequence of str
        What the program's inputs have to be, as PyTorch writes it.
    names : mapping of str to str
        Names of dimensions by ``input.axis``; others are called after the first input that has them.
    ranges : mapping of str to (int, int)
        Narrower ranges, by name or by ``input.axis``.
    inputs : mapping of str to str
        The name of each input as it is shown, by that of its node.

    Attributes
    ----------
    symbols : dict of str to str
        The name of the dimension that each of PyTorch's symbols is.
    sums : dict of str to sympy expression
        What the size of an axis is by the program's own checks, as ``L + P`` of a mask beside a cache.
    ranges : dict of str to (int, int)

    Raises
    ------
    ModelError
        A dimension has no upper bound, or a given range is none of the model.
    """

    def __init__(
        self,
        program: Any,
        guards: Sequence[str],
        names: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        inputs: Mapping[str, str],
    ) -> None:
        _refuse_constants(program, names)
        labels: dict[str, str] = {}  # the symbol of an axis
        symbols: dict[str, Any] = {}
        for label, size in program_sizes(program):
            if not isinstance(size, int):
                symbols.update((free.name, free) for free in size.node.expr.free_symbols)
                if size.node.expr.is_Symbol:
                    labels[label] = size.node.expr.name
        self.sums = _sums(program, symbols)
        for symbol in self.sums:
            del symbols[symbol]
        labels = {label: symbol for label, symbol in labels.items() if symbol in symbols}
        same = _equal_symbols(guards, labels)
        self.symbols: dict[str, str] = {}
        for label, symbol in labels.items():
            self.symbols.setdefault(
                same.get(symbol, symbol), _named(names.get(label)) or _NAME.sub("_", _shown(label, inputs))
            )
        for symbol, name in derived_names(program, names).items():
            self.symbols.setdefault(same.get(symbol, symbol), name)
        for symbol in symbols:  # some occur in sums and products alone
            self.symbols.setdefault(symbol, self.symbols.get(same.get(symbol, symbol), symbol))
        known = {_shown(label, inputs): self.symbols[symbol] for label, symbol in labels.items()}
        wanted = {known.get(key, key): value for key, value in ranges.items()}
        for key in wanted:
            if key not in self.symbols.values():
                raise unknown_range(key, [*self.symbols.values(), *known])
        self.ranges = self._ranges(program, symbols, wanted, known)

    def _ranges(
        self,
        program: Any,
        symbols: Mapping[str, Any],
        wanted: Mapping[str, tuple[int, int]],
        known: Mapping[str, str],
    ) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int | None]] = {}
        for symbol, expression in symbols.items():
            name = self.symbols[symbol]
            own = whole_bounds(program.range_constraints.get(expression))
            found[name] = _common(
                [found.get(name, (0, None)), own, *derived_bounds(program.range_constraints, expression)]
            )
        for name, given in wanted.items():
            found[name] = _narrowed(name, found[name], given)
        open_ones = [name for name, (_, high) in found.items() if high is None]
        if open_ones:
            labels = {name: f" ({label})" for label, name in list(known.items())[::-1]}
            described = ", ".join(f"{name}{labels.get(name, '')}" for name in open_ones)
            raise ModelError(
                f"{described}: no upper bound; give one in the export, Dim(…, max=…), or by "
                f"--range {open_ones[0]}=1..512"
            )
        return {name: (low, high or 0) for name, (low, high) in found.items()}


def name_dimensions(program: Any, names: Mapping[str, str]) -> None:
    """Write names of dimensions, by ``input.axis``, into a program, which keeps them when it is saved."""
    for node in program.graph.nodes:
        if node.op == "call_function":
            # PyTorch saves this with a node, and nothing with a whole program.
            own = {_KEY: json.dumps(names), _OWN_EXAMPLES: "true"}
            node.meta["custom"] = {**node.meta.get("custom", {}), **own}
            break


def dimension_names(program: Any) -> dict[str, str]:
    """Return the names of dimensions by ``input.axis``; none for programs that `export` did not make."""
    return {str(key): str(value) for key, value in json.loads(_noted(program, _KEY) or "{}").items()}


def has_own_examples(program: Any) -> bool:
    """Whether `export` made the program, and each input had a tensor of its own as its example."""
    return _noted(program, _OWN_EXAMPLES) is not None


def _noted(program: Any, key: str) -> Any:
    notes = (node.meta.get("custom") or {} for node in program.graph.nodes)
    return next((one[key] for one in notes if key in one), None)


def _shown(label: str, inputs: Mapping[str, str]) -> str:
    """Return ``input.axis`` with the input's name as it is shown."""
    node, _, axis = label.rpartition(".")
    return f"{inputs.get(node, node)}.{axis}"


def _named(text: str | None) -> str:
    return text if text and text.isidentifier() else ""


def derived_names(program: Any, names: Mapping[str, str]) -> dict[str, str]:
    """Return names of symbols that occur in sums and products alone, as h of an axis called ``4*h``."""
    found = {}
    for label, size in program_sizes(program):
        symbols = () if isinstance(size, int) else size.node.expr.free_symbols
        try:
            variables = parse_extent(names.get(label, "")).variables
        except ValueError:
            continue
        if len(symbols) == len(variables) == 1:
            found[next(iter(symbols)).name] = next(iter(variables))
    return found


def _refuse_constants(program: Any, names: Mapping[str, str]) -> None:
    found = [
        f"{names[label]} ({label}) is always {size}"
        for label, size in program_sizes(program)
        if isinstance(size, int) and label in names
    ]
    if found:
        raise ModelError(
            f"dimensions that the export made constant: {'; '.join(found)}; change the code of the model "
            "that takes such a size as a number, or leave its Dim out"
        )


def whole_bounds(given: Any) -> tuple[int, int | None]:
    """Return the least and the greatest value of a range of PyTorch's; None for no bound."""
    if given is None:
        return 1, None
    high = str(given.upper)
    return int(given.lower), int(given.upper) if high.isdigit() and int(high) < 2**31 else None


def derived_bounds(constraints: Mapping[Any, Any], symbol: Any) -> list[tuple[int, int | None]]:
    """Return the bounds of a symbol that ranges of linear expressions of it imply, as that of ``2*h``."""
    found = []
    for expression, given in constraints.items():
        if expression.is_Symbol or expression.free_symbols != {symbol}:
            continue
        slope, offset = expression.diff(symbol), expression.subs(symbol, 0)
        if slope.is_Integer and slope > 0:
            low, high = whole_bounds(given)
            most = None if high is None else (high - int(offset)) // int(slope)
            found.append((-((int(offset) - low) // int(slope)), most))
    return found


def _common(ranges: Sequence[tuple[int, int | None]]) -> tuple[int, int | None]:
    highs = [high for _, high in ranges if high is not None]
    return max(low for low, _ in ranges), min(highs, default=None)


def _narrowed(name: str, own: tuple[int, int | None], wanted: tuple[int, int]) -> tuple[int, int]:
    """Return a range within that of the export, whose branches on sizes may be wrong outside of it."""
    low, high = wanted
    if low < own[0] or (own[1] is not None and high > own[1]) or low > high:
        most = "…" if own[1] is None else own[1]
        remedy = f'; for others, export again: dietcode.export with Dim("{name}", min={low}, max={high})'
        raise ModelError(
            f"--range {name}={low}..{high}: outside of what the model was exported for; "
            f"allowed: {own[0]}..{most}" + (remedy if 0 <= low <= high else "")
        )
    return low, high


def program_sizes(program: Any) -> list[tuple[str, Any]]:
    """Return the sizes of all axes of the inputs, with ``input.axis``."""
    wanted = set(program.graph_signature.user_inputs)
    return [
        (f"{node.name}.{axis}", size)
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in wanted and hasattr(node.meta.get("val"), "shape")
        for axis, size in enumerate(node.meta["val"].shape)
    ]


def ranges_of_axes(program: Any) -> dict[str, tuple[int, int | None]]:
    """Return the ranges of all axes of the inputs that are a symbol, by ``input.axis``."""
    found = {}
    for label, size in program_sizes(program):
        if not isinstance(size, int) and size.node.expr.is_Symbol:
            found[label] = whole_bounds(program.range_constraints.get(size.node.expr))
    return found


def refuse_constants(
    program: Any, ranges: Mapping[str, tuple[int, int | None]], names: Mapping[str, str]
) -> None:
    """Refuse axes that PyTorch made constants of as it took operators apart.

    What it learns there of a size, as that it is not 1, narrows the size's range: 1…2 becomes 2.

    Parameters
    ----------
    ranges : mapping of str to (int, int or None)
        Of `ranges_of_axes`, before.
    names : mapping of str to str
        Names of dimensions, by ``input.axis``.

    Raises
    ------
    ModelError
        One became a constant.
    """
    for label, size in program_sizes(program):
        if label in ranges and (isinstance(size, int) or size.node.expr.is_number):
            low, high = ranges[label]
            name = names.get(label, label)
            raise ModelError(
                f"{name}, of {low}…{high}, became {size} where PyTorch took operators apart; allowed: "
                f"a max of 3 or more in the export, which --range {name}={low}..{high} narrows"
            )


def _sums(program: Any, symbols: Mapping[str, Any]) -> dict[str, Any]:
    """Return the symbols of axes that checks of the program say to be sums of others, and the sums."""
    found: dict[str, Any] = {}
    used: set[str] = set()
    for node in program.graph.nodes:
        if str(node.target).rpartition(".")[0] != "aten._assert_scalar":
            continue
        truth = getattr(node.args[0], "meta", {}).get("val")
        relation: Any = getattr(getattr(truth, "node", None), "expr", None)
        if type(relation).__name__ != "Equality":
            continue
        for own, other in (relation.args, relation.args[::-1]):
            parts = {one.name for one in other.free_symbols}
            known = parts <= symbols.keys() - found.keys() and own.is_Symbol and own.name in symbols
            if known and other.is_Add and own.name not in {*parts, *found, *used}:
                found[own.name] = other
                used |= parts
                break
    return found


def guard_in(guard: str, sizes: Mapping[str, object]) -> str:
    """Return a guard of PyTorch's with texts in the place of sizes.

    Parameters
    ----------
    guard : str
        As ``L['x'].size()[0] != 3``.
    sizes : mapping of str to object
        By ``input.axis``.

    Raises
    ------
    KeyError
        It is about another size.
    """

    def named(match: re.Match[str]) -> str:
        parts = _PART.findall(match[1])
        if parts[0] == _FLAT:  # of a program that PyTorch's own tracer of Python made
            inputs = list(dict.fromkeys(label.rpartition(".")[0] for label in sizes))
            parts = inputs[int(parts[1]) : int(parts[1]) + 1]
        label = f"{'_'.join(parts)}.{match[2]}"
        return str(sizes[label if label in sizes else label.lower()])  # as PyTorch names nodes

    return _SIZE.sub(named, guard)


def _equal_symbols(guards: Sequence[str], symbols: Mapping[str, str]) -> dict[str, str]:
    """Return, for symbols that guards say are others, which ones.

    Parameters
    ----------
    guards : sequence of str
    symbols : mapping of str to str
        The symbol of an axis, by ``input.axis``.
    """
    found: dict[str, str] = {}

    def root(symbol: str) -> str:
        while symbol in found:
            symbol = found[symbol]
        return symbol

    for guard in guards:
        left, equals, right = guard.partition(" == ")
        try:
            difference = parse_extent(guard_in(left, symbols)) - parse_extent(guard_in(right, symbols))
        except (ValueError, KeyError):
            continue  # says something else, which calls are checked for
        terms = sorted((number, [factor for factor, _ in monomial]) for number, monomial in difference.terms)
        two = equals and len(terms) == 2 and [number for number, _ in terms] == [-1, 1]
        if two and all(len(one) == 1 and isinstance(one[0], str) for _, one in terms):
            first, second = sorted(root(str(one[0])) for _, one in terms)
            if first != second:
                found[second] = first
    return {symbol: root(symbol) for symbol in found}
