"""Functions as they stand in a file: their trees, and code that takes the place of theirs."""

from __future__ import annotations

import ast
import copy
import functools
import gc
import hashlib
import linecache
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

# By its number, code that has taken the place of a function's, and the instructions of that one.
_ORIGINAL: dict[int, tuple[CodeType, Any]] = {}
PLACEHOLDER = "\0dietcode"
_FUTURES = 0x1FE0000  # the flags of ``from __future__`` that code has


@dataclass(frozen=True, eq=False)
class SourceUnit:
    """An outermost function or method of a file, with all that is within it.

    Attributes
    ----------
    file : str
    qualname : str
    node : ast.FunctionDef
        Or another node of a function; not changed.
    classes : tuple of str
        Around it.
    digest : str
        Of its source; the same wherever it stands in the file.
    nodes : list of ast.AST
        All of it, each before what is in it: regions name nodes by their positions here.
    """

    file: str
    qualname: str
    node: Any
    classes: tuple[str, ...]
    digest: str
    nodes: list[ast.AST] = field(repr=False)

    @property
    def lines(self) -> range:
        """The lines that it has."""
        decorators = getattr(self.node, "decorator_list", ())
        first = min([self.node.lineno, *(one.lineno for one in decorators)])
        return range(first, self.node.end_lineno + 1)

    @functools.cached_property
    def numbers(self) -> dict[ast.AST, int]:
        """The position of each node."""
        return {node: number for number, node in enumerate(self.nodes)}


def preorder(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all in it, in the order of the source's tree."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context | ast.operator | ast.unaryop | ast.cmpop | ast.boolop):
            yield from preorder(child)


@functools.lru_cache(maxsize=256)
def units_of(file: str) -> tuple[SourceUnit, ...]:
    """Return the units of a file; none where there is no source, or not of this Python."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: list[SourceUnit] = []

    def visit(node: ast.AST, classes: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                name = getattr(child, "name", "<lambda>")
                digest = hashlib.sha256(ast.dump(child).encode()).hexdigest()[:16]
                found.append(
                    SourceUnit(
                        file, ".".join([*classes, name]), child, classes, digest, list(preorder(child))
                    )
                )
            elif isinstance(child, ast.ClassDef):
                visit(child, (*classes, child.name))
            elif isinstance(child, ast.AST):
                visit(child, classes)

    visit(tree, ())
    return tuple(found)


def forget_changed_files() -> None:
    """Forget the source of files that have changed since they were read."""
    before = dict(linecache.cache)
    linecache.checkcache()
    if linecache.cache != before:
        units_of.cache_clear()
        _codes_of.cache_clear()


@functools.lru_cache(maxsize=256)
def _codes_of(file: str) -> tuple[CodeType, ...]:
    text = "".join(linecache.getlines(file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return tuple(nested_codes(compile(text, file, "exec", dont_inherit=True)))
        except (SyntaxError, ValueError, RecursionError):
            return ()


def unit_of(code: CodeType) -> SourceUnit | None:
    """Return the unit that code stands in."""
    fitting = [one for one in units_of(code.co_filename) if code.co_firstlineno in one.lines]
    names = [one for one in fitting if outermost(code) == one.qualname]
    return names[0] if names else None


def outermost(code: CodeType) -> str:
    """Return the qualified name of the outermost function that code is in."""
    return code.co_qualname.split(".<locals>")[0]


def runs_as_written(unit: SourceUnit, codes: Iterable[CodeType]) -> bool:
    """Whether some code of a unit's functions does what its source says: that may be newer than the code."""
    first, *_ = codes
    written = _written(unit, compiled(unit, copy.deepcopy(unit.node), first.co_flags))
    return any((one.co_qualname, _original(one)) in written for one in codes)


def _written(unit: SourceUnit, alone: CodeType) -> set[tuple[str, Any]]:
    """Return what the functions of a unit do by their source.

    Parameters
    ----------
    unit : SourceUnit
    alone : CodeType
        Of the unit, as a notebook compiles it; calls of what its file imports are compiled in another way.
    """
    codes = [*_codes_of(unit.file), *nested_codes(alone)]
    return {(one.co_qualname, _instructions(one)) for one in codes if outermost(one) == unit.qualname}


def compiled(unit: SourceUnit, node: Any, flags: int) -> CodeType:
    """Return the code of a unit whose tree has been changed.

    Parameters
    ----------
    unit : SourceUnit
    node : ast.AST
        What is in its place.
    flags : int
        Of code of the same file, for its ``from __future__``.
    """
    body: Any = node if isinstance(node, ast.stmt) else ast.Expr(node)
    for name in reversed(unit.classes):
        around: Any = ast.parse(f"class {name}: pass").body[0]
        around.body = [body]
        body = around
    module = ast.fix_missing_locations(ast.Module([body], []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of placeholders that are called
        code = compile(module, unit.file, "exec", flags & _FUTURES, dont_inherit=True)
    wanted = unit.qualname
    return next(one for one in nested_codes(code) if one.co_qualname == wanted)


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and all that is within it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from nested_codes(one)


def filled(code: CodeType, objects: Sequence[Any]) -> CodeType:
    """Return code with objects where it has placeholders for them."""

    def constant(one: Any) -> Any:
        if isinstance(one, CodeType):
            return filled(one, objects)
        if isinstance(one, tuple) and len(one) == 2 and one[0] == PLACEHOLDER:
            return objects[one[1]]
        return one

    return code.replace(co_consts=tuple(map(constant, code.co_consts)))


def placeholder(number: int) -> ast.Constant:
    """Return a constant that stands for an object."""
    value: Any = (PLACEHOLDER, number)
    return ast.Constant(value)


def _keyed(code: CodeType) -> dict[tuple[str, int, int], CodeType]:
    """Return all code within code, by name, line, and which of those with the same of both it is."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    found: dict[tuple[str, int, int], CodeType] = {}
    for one in nested_codes(code):
        name = one.co_qualname, one.co_firstlineno
        found[*name, counts[name]] = one
        counts[name] += 1
    return found


def _place(code: CodeType) -> Any:
    """Return what tells code from all other code: two lambdas may stand in one line."""
    column = next((one[2] for one in code.co_positions() if one[2]), 0) if code.co_name == "<lambda>" else 0
    return code.co_filename, code.co_qualname, code.co_firstlineno, column


def _instructions(code: CodeType) -> Any:
    """Return what code does, wherever it stands: the source may have changed since the code was made."""
    plain = [one for one in code.co_consts if isinstance(one, int | float | str | bytes | complex)]
    return code.co_code, code.co_names, tuple((type(one), str(one)) for one in plain)


def _original(code: CodeType) -> Any:
    """Return the instructions of a function's own code, where other code may have taken its place."""
    known = _ORIGINAL.get(id(code))
    return _instructions(code) if known is None else known[1]


class Replacement:
    """Code in the place of units', for all functions that have it.

    Parameters
    ----------
    changed : iterable of (SourceUnit, tree, objects)
        What is compiled in the place of each, and the objects that its placeholders stand for.
    flags : mapping of str to int
        By file, the flags of its code.
    spaces : mapping of str to dict
        By file, the global variables of the functions: a file may be loaded twice.
    """

    def __init__(
        self,
        changed: Iterable[tuple[SourceUnit, Any, Sequence[Any]]],
        flags: Mapping[str, int],
        spaces: Mapping[str, dict[str, Any]],
    ) -> None:
        self._spaces = spaces
        self._codes: dict[Any, tuple[set[tuple[str, Any]], CodeType]] = {}
        self._before: list[tuple[FunctionType, CodeType]] = []
        for unit, tree, objects in changed:
            alone = compiled(unit, copy.deepcopy(unit.node), flags.get(unit.file, 0))
            old, written = _keyed(alone), _written(unit, alone)
            new = _keyed(filled(compiled(unit, tree, flags.get(unit.file, 0)), objects))
            self._codes |= {_place(code): (written, new[key]) for key, code in old.items() if key in new}

    def install(self) -> None:
        """Give functions their new code."""
        places = {place[0:1] + place[2:3] for place in self._codes}
        for function in [one for one in gc.get_objects() if type(one) is FunctionType]:
            code = function.__code__
            if (code.co_filename, code.co_firstlineno) not in places:
                continue
            if function.__globals__ is not self._spaces.get(code.co_filename):
                continue
            written, new = self._codes.get(_place(code), (set(), None))
            own = _original(code)
            is_same = (code.co_qualname, own) in written
            if new is not None and new.co_freevars == code.co_freevars and is_same:
                self._before.append((function, code))
                function.__code__ = new
                _ORIGINAL[id(new)] = new, own

    def uninstall(self) -> None:
        """Give functions their own code again."""
        while self._before:
            function, code = self._before.pop()
            function.__code__ = code
