"""How numbers and texts are formatted: by f-strings, ``format``, ``str.format`` and ``%``.

The machine knows a width, digits, and d, f, e or g. All else is said by functions of `numerals` around that.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.programs import letters, numerals
from dietcode.programs.statements import at, call, constant
from dietcode.runtime.programs.code import SPECIFICATION

_GIVEN = "\0"  # in the place of a width that is computed
_PARTS = re.compile(
    rf"(?:(?P<fill>.)?(?P<align>[<>=^]))?(?P<sign>[-+ ])?(?P<prefix>#)?(?P<zeros>0)?(?P<width>\d+|{_GIVEN})?"
    r"(?P<between>[,_])?(?:\.(?P<digits>\d{1,2}))?(?P<form>[bdeEfFgGosxX%])?",
    re.DOTALL,
)
_PERCENT = re.compile(
    r"%(?P<flags>[-+ 0]*)(?P<width>\d+)?(?:\.(?P<digits>\d{1,2}))?(?P<form>[diufFeEgGsrxXo%])"
)
_BASES = {"b": 2, "o": 8, "x": 16, "X": 16}


def specification_of(node: ast.FormattedValue) -> str | None:
    """Return how the machine formats a value, empty for as it is; None for what it does not know."""
    text = _text_of(node)
    return text if text is not None and (not text or re.fullmatch(SPECIFICATION, text)) else None


def _text_of(node: ast.FormattedValue) -> str | None:
    """Return a specification, with `_GIVEN` in the place of a width that is computed; None for any other."""
    given = node.format_spec
    if given is None:
        return ""
    parts = given.values if isinstance(given, ast.JoinedStr) else []
    found = [str(one.value) if isinstance(one, ast.Constant) else _GIVEN for one in parts]
    return "".join(found) if "".join(found).count(_GIVEN) < 2 else None


@dataclass(frozen=True)
class _Specification:
    """The parts of a specification; the width is an expression, or None."""

    fill: str
    align: str
    sign: str
    prefix: bool
    width: ast.expr | None
    between: str
    digits: int | None
    form: str


def _parts_of(node: ast.FormattedValue) -> _Specification | None:
    text = _text_of(node)
    found = None if text is None else _PARTS.fullmatch(text)
    if found is None:
        return None
    given = node.format_spec.values if isinstance(node.format_spec, ast.JoinedStr) else []
    width: ast.expr | None = None
    if found["width"] == _GIVEN:
        (own,) = (one for one in given if isinstance(one, ast.FormattedValue))
        if own.conversion != -1 or own.format_spec is not None:
            return None
        width = own.value
    elif found["width"]:
        width = at(node, ast.Constant(int(found["width"])))
    fill = found["fill"] or ("0" if found["zeros"] else " ")
    align = found["align"] or ("=" if found["zeros"] else "")
    digits = None if found["digits"] is None else int(found["digits"])
    sign, form = found["sign"] or "", found["form"] or ""
    return _Specification(
        fill, align, sign, bool(found["prefix"]), width, found["between"] or "", digits, form
    )


def written(node: ast.FormattedValue, value: ast.expr, kind: str) -> ast.expr | None:
    """Return a value that is formatted as an expression; None where Python or a program has no such format.

    Parameters
    ----------
    node : FormattedValue
    value : expression
        What is formatted, a variable or the text of one: it may be read twice.
    kind : str
        ``text``, ``int`` or ``float``.
    """
    spec = _parts_of(node)
    if spec is None:
        return None
    return _of_text(node, spec, value) if kind == "text" else _of_number(node, spec, value, kind == "int")


def _of_text(node: ast.AST, spec: _Specification, value: ast.expr) -> ast.expr | None:
    if spec.form not in ("", "s") or spec.sign or spec.prefix or spec.between or spec.align == "=":
        return None
    if spec.digits is not None:
        cut = at(node, ast.Slice(None, at(node, ast.Constant(spec.digits)), None))
        value = at(node, ast.Subscript(value, cut, ast.Load()))
    return _in_width(node, spec, value, spec.align or "<")


def _of_number(node: ast.AST, spec: _Specification, value: ast.expr, is_int: bool) -> ast.expr | None:
    is_based = spec.form in _BASES
    is_whole = is_based or spec.form == "d"
    if spec.form == "s" or (is_whole and (not is_int or spec.digits is not None)):
        return None
    if (spec.prefix and not is_based) or (spec.between and (is_based or spec.align == "=")):
        return None
    if not spec.form and is_int and spec.digits is not None:
        return None
    found = _digits(node, spec, value)
    if spec.form in ("E", "F", "G"):
        found = call(node, constant(letters.in_capitals), found)
    if spec.between:
        found = call(node, constant(numerals.grouped), found, at(node, ast.Constant(spec.between)))
    if spec.sign in ("+", " "):
        found = call(node, constant(numerals.signed), found, at(node, ast.Constant(spec.sign)))
    return _in_width(node, spec, found, spec.align or ">")


def _digits(node: ast.AST, spec: _Specification, value: ast.expr) -> ast.expr:
    """Return a number as a text without sign, width and groups: what is no number fails there."""
    form = spec.form.lower()
    digits = 6 if spec.digits is None else spec.digits
    if spec.form in _BASES:
        return in_base(node, value, spec.form, spec.prefix)
    if form == "%":
        times = at(node, ast.BinOp(call(node, "float", value), ast.Mult(), at(node, ast.Constant(100.0))))
        return at(node, ast.JoinedStr([_plainly(node, times, f".{digits}f"), ast.Constant("%")]))
    if form == "d" or form in ("e", "f", "g"):
        return at(node, ast.JoinedStr([_plainly(node, value, "d" if form == "d" else f".{digits}{form}")]))
    once = at(node, ast.BinOp(value, ast.Mult(), at(node, ast.Constant(1))))  # a bool is a number here
    if spec.digits is None:
        return at(node, ast.JoinedStr([_plainly(node, once, "")]))
    behind = max(spec.digits, 1) - 1
    by_power = at(node, ast.JoinedStr([_plainly(node, once, f".{behind}e")]))
    plain = at(node, ast.JoinedStr([_plainly(node, once, "")]))
    return call(node, constant(numerals.shortened), by_power, at(node, ast.Constant(behind)), plain)


def in_base(node: ast.AST, value: ast.expr, form: str, has_prefix: bool) -> ast.expr:
    """Return a whole number in a base, as ``bin``, ``oct`` and ``hex`` have it with a prefix."""
    once = at(node, ast.BinOp(value, ast.Mult(), at(node, ast.Constant(1))))
    digits = "0123456789ABCDEF" if form == "X" else "0123456789abcdef"
    given = (_BASES[form], digits, f"0{form}" if has_prefix else "")
    return call(node, constant(numerals.in_base), once, *(at(node, ast.Constant(one)) for one in given))


def _plainly(node: ast.AST, value: ast.expr, spec: str) -> ast.FormattedValue:
    given = at(node, ast.JoinedStr([at(node, ast.Constant(spec))])) if spec else None
    return at(node, ast.FormattedValue(value, -1, given))


def _converted(node: ast.AST, value: ast.expr, spec: str, conversion: str) -> ast.FormattedValue:
    """Return a value by a specification, as ``!r`` or ``!s`` has it."""
    made = _plainly(node, call(node, "repr", value) if conversion == "r" else value, spec)
    made.conversion = ord(conversion) if conversion in ("s", "a") else -1
    return made


def _in_width(node: ast.AST, spec: _Specification, value: ast.expr, align: str) -> ast.expr:
    if spec.width is None:
        return value
    if align == "=":
        ahead = at(node, ast.Constant(2 if spec.prefix else 0))
        fill = at(node, ast.Constant(spec.fill))
        return call(node, constant(numerals.filled), value, fill, spec.width, ahead)
    function = {"<": numerals.at_left, ">": numerals.at_right, "^": numerals.centred}[align]
    return call(node, constant(function), value, spec.width, at(node, ast.Constant(spec.fill)))


def displayed(node: ast.AST, name: str, many: int | None) -> ast.expr:
    """Return the text of a list, or of a tuple of so many items, that a variable holds."""
    items = at(node, ast.Name(name, ast.Load()))
    if many is None:
        loop = ast.comprehension(at(node, ast.Name(f"one {name}", ast.Store())), items, [], 0)
        one = at(node, ast.Name(f"one {name}", ast.Load()))
        rows: ast.expr = at(node, ast.ListComp(call(node, "repr", one), [loop]))
        rows.col_offset = -int(name.rsplit(maxsplit=1)[-1])  # another one within it has a list of its own
    else:
        own = [at(node, ast.Subscript(items, at(node, ast.Constant(k)), ast.Load())) for k in range(many)]
        rows = at(node, ast.List([call(node, "repr", one) for one in own], ast.Load()))
    ends = at(node, ast.Constant("[]" if many is None else "()"))
    return call(node, constant(numerals.between_ends), rows, ends)


def by_fields(node: ast.AST, text: str, args: Sequence[ast.expr], named: dict[str, ast.expr]) -> Any:
    """Return ``text.format(*args, **named)`` as an f-string; None where fields have fields of their own."""
    parts: list[ast.expr] = []
    number = 0
    try:
        for before, name, spec, conversion in string.Formatter().parse(text):
            parts.append(at(node, ast.Constant(before)))
            if name is None:
                continue
            value = named.get(name)
            if name == "" or name.isdecimal():
                value = args[int(name or number)]
                number += not name
            if value is None or "{" in (spec or ""):
                return None
            parts.append(_converted(node, value, spec or "", conversion or ""))
    except (ValueError, IndexError):
        return None
    return at(node, ast.JoinedStr(parts))


def by_percent(node: ast.AST, text: str, given: Sequence[tuple[ast.expr, Any]]) -> Any:
    """Return ``text % given`` as an f-string; None for what neither Python nor a program has.

    Parameters
    ----------
    node : node
    text : str
    given : sequence of (expression, object)
        What is formatted, and the values of a sample.
    """
    parts: list[ast.expr] = []
    waiting, end = list(given), 0
    for found in _PERCENT.finditer(text):
        parts.append(at(node, ast.Constant(text[end : found.start()])))
        end = found.end()
        if found["form"] == "%":
            parts.append(at(node, ast.Constant("%")))
            if found.group() != "%%":
                return None
            continue
        made = _of_percent(node, found, *waiting.pop(0)) if waiting else None
        if made is None:
            return None
        parts.append(made)
    parts.append(at(node, ast.Constant(text[end:])))
    texts_between = "".join(str(one.value) for one in parts if isinstance(one, ast.Constant))
    is_whole = texts_between.count("%") == text.count("%%")
    return at(node, ast.JoinedStr(parts)) if is_whole and not waiting else None


def _of_percent(
    node: ast.AST, found: re.Match[str], value: ast.expr, known: Any
) -> ast.FormattedValue | None:
    flags, form = found["flags"], found["form"]
    width = found["width"] or ""
    digits = "" if found["digits"] is None else f".{found['digits']}"
    if form in ("s", "r"):
        if set(flags) - {"-"}:
            return None
        spec = f"{'<' if flags else '>'}{width}{digits}" if width or digits else ""
        return _converted(node, value, spec, form)
    is_whole = form in "diuxXo"
    if not isinstance(known, int | float) or (is_whole and digits):
        return None
    if is_whole and isinstance(known, float):
        if form in "xXo":
            return None
        value = call(node, "int", value)
    sign = "+" if "+" in flags else " " if " " in flags else ""
    zeros = "0" if "0" in flags and "-" not in flags and width else ""
    own = "d" if form in "diu" else form
    return _plainly(node, value, f"{'<' if '-' in flags and width else ''}{sign}{zeros}{width}{digits}{own}")
