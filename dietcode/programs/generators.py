"""Generators, as functions that return the list of what they yield."""

from __future__ import annotations

import ast

from dietcode.programs.statements import assigned, at, load

_FOUND = "yielded"
MOST = 100_000  # values of a generator of a sample


def without_yield(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function that does not yield, and the list of all that it would; another one as it is.

    ``yield x`` becomes ``found.append(x)`` and ``yield from items`` becomes ``found.extend(items)``. A
    generator is run to its end where it is called, so one stays, and is refused, that goes on without one.

    Parameters
    ----------
    tree : FunctionDef
        Whose statements are changed.
    """
    own = _Own()
    own.visit_body(tree)
    if not own.yields or own.is_endless or own.has_values:
        return tree
    tree.body = [
        assigned(tree, _FOUND, at(tree, ast.List([], ast.Load()))),
        *_Collected(tree).in_body(tree.body),
        at(tree, ast.Return(load(tree, _FOUND))),
    ]
    return tree


def has_yield(tree: ast.FunctionDef) -> bool:
    """Whether a function is a generator."""
    own = _Own()
    own.visit_body(tree)
    return own.yields


def was_generator(tree: ast.FunctionDef) -> bool:
    """Whether a function is what `without_yield` has made of a generator."""
    first = tree.body[0] if tree.body else None
    return isinstance(first, ast.Assign) and is_of_generator(first.targets[0])


def is_of_generator(node: ast.expr) -> bool:
    """Whether an expression is the list of what a generator has yielded so far."""
    return isinstance(node, ast.Name) and node.id.startswith(f"{_FOUND} ")


def as_list(node: ast.expr) -> ast.expr:
    """Return a generator as a list, which is marked as such; anything else as it is."""
    if not isinstance(node, ast.GeneratorExp):
        return node
    made = at(node, ast.ListComp(node.elt, node.generators))
    made.is_generator = True  # type: ignore[attr-defined]
    return made


def is_generator(node: ast.ListComp) -> bool:
    """Whether a list is what `as_list` has made of a generator."""
    return getattr(node, "is_generator", False)


def mark_whole(node: ast.expr) -> None:
    """Note that all values of what may be a generator are there before they are used."""
    node.is_whole = True  # type: ignore[attr-defined]


def is_whole(node: ast.expr) -> bool:
    """Whether `mark_whole` has marked an expression."""
    return getattr(node, "is_whole", False)


class _Own(ast.NodeVisitor):
    """What a function itself has, without the functions within it."""

    def __init__(self) -> None:
        self.yields = False
        self.has_values = False  # of ``x = yield``, or of ``return x``
        self.is_endless = False

    def visit_body(self, tree: ast.FunctionDef) -> None:
        for one in tree.body:
            self.visit(one)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave it out."""

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Leave it out."""

    def visit_Expr(self, node: ast.Expr) -> None:
        given: ast.AST | None = node.value
        if isinstance(given, ast.Yield | ast.YieldFrom):
            self.yields = True
            given = given.value
        if given is not None:
            self.visit(given)

    def visit_Yield(self, node: ast.Yield) -> None:
        self.yields = self.has_values = True

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.yields = self.has_values = True

    def visit_Return(self, node: ast.Return) -> None:
        self.has_values |= node.value is not None

    def visit_While(self, node: ast.While) -> None:
        is_always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self.is_endless |= is_always and not any(map(_leaves, node.body))
        self.generic_visit(node)


def _leaves(node: ast.AST, is_own: bool = True) -> bool:
    """Whether a part of a loop's text may leave the loop; one of a loop within it breaks that one alone."""
    if isinstance(node, ast.Return | ast.Raise) or (isinstance(node, ast.Break) and is_own):
        return True
    is_own = is_own and not isinstance(node, ast.For | ast.While)
    return any(_leaves(one, is_own) for one in ast.iter_child_nodes(node))


class _Collected(ast.NodeTransformer):
    """Statements that yield as ones that add to a list."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self._tree = tree

    def in_body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(one) for one in body]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return at(node, ast.Return(load(self._tree, _FOUND)))

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        given = node.value
        if not isinstance(given, ast.Yield | ast.YieldFrom):
            return node
        value = given.value if given.value is not None else at(node, ast.Constant(None))
        word = "append" if isinstance(given, ast.Yield) else "extend"
        mark_whole(value)
        method = at(node, ast.Attribute(load(self._tree, _FOUND), word, ast.Load()))
        return at(node, ast.Expr(at(node, ast.Call(method, [value], []))))
