"""``*`` of what is computed where it is given, and of targets within others, said by names.

New names have a space in them, so that no text has them.
"""

from __future__ import annotations

import ast

from dietcode.programs.generators import as_list
from dietcode.programs.made_lists import is_looped
from dietcode.programs.statements import at, bound, call, is_read_alone, load, name_of

_ALIKE = (ast.Name, ast.Attribute, ast.Constant, ast.Lambda)  # what is before a star and may stay there


def with_names_of_stars(node: ast.Call) -> ast.expr | None:
    """Return ``f(a, *g(b))`` as ``(s := g(b), f(a, *s))[1]``; None where each ``*`` is of a name already.

    What has effects before a star is evaluated before it, too.
    """
    node.args = [own for one in node.args for own in _written_out(one)]
    stars = [k for k, one in enumerate(node.args) if isinstance(one, ast.Starred)]
    computed = [k for k in stars if not is_read_alone(_value(node.args[k]))]
    if not computed:
        return None
    begin: list[ast.expr] = []
    args: list[ast.expr] = []
    for k, one in enumerate(node.args):
        is_star = isinstance(one, ast.Starred)
        value = _value(one)
        if k > computed[-1] or isinstance(value, _ALIKE):
            args.append(one)
            continue
        if is_star:
            value = as_list(value)
            value = call(value, "list", value) if is_looped(value) else value
        begin.append(bound(one, "star", value))
        read = load(one, "star")
        args.append(at(one, ast.Starred(read, ast.Load())) if is_star else read)
    made = at(node, ast.Call(node.func, args, node.keywords))
    both = at(node, ast.Tuple([*begin, made], ast.Load()))
    return at(node, ast.Subscript(both, at(node, ast.Constant(len(begin))), ast.Load()))


def _value(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def _written_out(node: ast.expr) -> list[ast.expr]:
    """Return the items of ``*[a, b]``; anything else as it is."""
    if isinstance(node, ast.Starred) and isinstance(node.value, ast.List | ast.Tuple):
        return [own for one in node.value.elts for own in _written_out(one)]
    return [node]


def with_names_of_targets(target: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
    """Return a target whose parts with stars are names, and the assignments that take these apart.

    ``a, (b, *c)`` becomes ``a, part`` and ``b, *c = part``.
    """
    behind: list[ast.stmt] = []
    if isinstance(target, ast.Tuple | ast.List):
        for k, one in enumerate(target.elts):
            if isinstance(one, ast.Tuple | ast.List) and _has_star(one):
                target.elts[k] = at(one, ast.Name(name_of(one, "part"), ast.Store()))
                behind.append(at(one, ast.Assign([one], load(one, "part"))))
    return target, behind


def with_name_of_target(target: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
    """Return a loop's target without stars, and the assignments that take it apart."""
    if not isinstance(target, ast.Tuple | ast.List) or not _has_star(target):
        return target, []
    name = at(target, ast.Name(name_of(target, "part"), ast.Store()))
    return name, [at(target, ast.Assign([target], load(target, "part")))]


def _has_star(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Starred) for one in ast.walk(node))
