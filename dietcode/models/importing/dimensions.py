"""The dimensions of an exported program: PyTorch's symbols, their names and ranges, and which are the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import parse_extent
from dietcode.workload.text import clip

_NAME = re.compile(r"[^A-Za-z0-9_]")
_SIZE = re.compile(r"L((?:\['\w+'\]|\[\d+\])+)\.size\(\)\[(\d+)\]")
_PART = re.compile(r"\['?(\w+)'?\]")


class Dimensions:
    """The dimensions of a program: PyTorch's symbols, their names, and their ranges."""

    def __init__(self, program: Any, names: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> None:
        self.symbols: dict[str, str] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        aliases: dict[str, str] = {}
        expressions = {}
        for label, size in _sizes(program):
            if isinstance(size, int):
                continue
            expression = size.node.expr
            if expression.is_Symbol:
                symbol = expression.name
                if symbol not in self.symbols:
                    self.symbols[symbol] = names.get(label) or _NAME.sub("_", label)
                    expressions[symbol] = expression
                aliases[label] = self.symbols[symbol]
        for free in {
            s for _, size in _sizes(program) if not isinstance(size, int) for s in size.node.expr.free_symbols
        }:
            if free.name not in self.symbols:  # occurs in sums and products alone
                self.symbols[free.name] = free.name
                expressions[free.name] = free
        wanted = {aliases.get(key, key): value for key, value in ranges.items()}
        allowed = ", ".join([*self.symbols.values(), *aliases]) or "none: it has no dynamic dimension"
        for key in wanted:
            if key not in self.symbols.values():
                raise ModelError(f"--range {clip(key)}: no dimension of the model; allowed: {allowed}")
        problems = []
        for symbol, name in self.symbols.items():
            given = program.range_constraints.get(expressions[symbol])
            low, high = _bounds(given)
            if name in wanted:
                low, high = _narrowed(name, (low, high), wanted[name])
            if high is None:
                labels = [label for label, own in aliases.items() if own == name]
                problems.append(f"{name}{' (' + labels[0] + ')' if labels else ''}")
            self.ranges[name] = (max(1, low), high or 0)
        if problems:
            raise ModelError(
                f"{', '.join(problems)}: no upper bound; give one in the export, Dim(…, max=…), or by "
                f"--range {problems[0].split(' ')[0]}=1..512"
            )


def _bounds(given: Any) -> tuple[int, int | None]:
    if given is None:
        return 1, None
    high = str(given.upper)
    return int(given.lower), int(given.upper) if high.isdigit() and int(high) < 2**31 else None


def _narrowed(name: str, own: tuple[int, int | None], wanted: tuple[int, int]) -> tuple[int, int]:
    low, high = wanted
    # PyTorch begins what it chose by itself at 2; 1 is an extent like others here.
    least = 1 if own[0] <= 2 else own[0]
    if low < least or (own[1] is not None and high > own[1]) or low > high:
        allowed = f"{least}..{'…' if own[1] is None else own[1]}"
        raise ModelError(
            f"--range {name}={low}..{high}: outside of what the model was exported for; allowed: {allowed}"
        )
    return low, high


def _sizes(program: Any) -> list[tuple[str, Any]]:
    """Return the sizes of all axes of the inputs, with ``input.axis``."""
    wanted = set(program.graph_signature.user_inputs)
    return [
        (f"{node.name}.{axis}", size)
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in wanted and hasattr(node.meta.get("val"), "shape")
        for axis, size in enumerate(node.meta["val"].shape)
    ]


def _equal_symbols(program: Any, symbols: Mapping[str, str]) -> dict[str, str]:
    """Return, for symbols that the program's guards say are others, which ones.

    Parameters
    ----------
    symbols : mapping of str to str
        The symbol of an axis, by ``input.axis``.
    """
    found: dict[str, str] = {}

    def root(symbol: str) -> str:
        while symbol in found:
            symbol = found[symbol]
        return symbol

    def named(match: re.Match[str]) -> str:
        return symbols[f"{'_'.join(_PART.findall(match[1]))}.{match[2]}"]

    for guard in getattr(program, "_guards_code", None) or ():
        left, equals, right = str(guard).partition(" == ")
        try:
            difference = parse_extent(_SIZE.sub(named, left)) - parse_extent(_SIZE.sub(named, right))
        except (ValueError, KeyError):
            continue  # says something else, which shapes and ranges are checked for anyway
        terms = sorted((number, [factor for factor, _ in monomial]) for number, monomial in difference.terms)
        two = equals and len(terms) == 2 and [number for number, _ in terms] == [-1, 1]
        if two and all(len(one) == 1 and isinstance(one[0], str) for _, one in terms):
            first, second = sorted(root(str(one[0])) for _, one in terms)
            if first != second:
                found[second] = first
    return {symbol: root(symbol) for symbol in found}
