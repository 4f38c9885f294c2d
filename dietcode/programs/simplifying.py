"""A function's syntax tree with fewer kinds of nodes: what can be said by others is said by them."""

from __future__ import annotations

import ast
import collections
import itertools
from typing import Any, TypeGuard

from dietcode.programs import lists, orders
from dietcode.programs.cells import with_caches, with_cells
from dietcode.programs.displays import DisplaySimplification
from dietcode.programs.exceptions import is_exception_class
from dietcode.programs.generators import as_list, mark_whole, without_yield
from dietcode.programs.itemwise import cycled
from dietcode.programs.lambdas import computed_defaults, without_lambdas
from dietcode.programs.lazy_loops import as_generator, lazily_looped, without_generators
from dietcode.programs.made_lists import (
    LOOPED,
    MADE,
    comprehension_of,
    first_of,
    is_looped,
    is_mapped,
    mapped,
    marked_container,
    renamed,
)
from dietcode.programs.nested_functions import functions_named, with_variables
from dietcode.programs.parent_methods import parent_initialiser, parent_method
from dietcode.programs.standard_library import rewritten
from dietcode.programs.stars import with_name_of_target, with_names_of_stars, with_names_of_targets
from dietcode.programs.statements import (
    Outside,
    assigned,
    at,
    bound,
    call,
    chosen_case,
    constant,
    load,
    loop_without_else,
    name_of,
    one_by_one,
    taken_apart,
    the_same,
    without_context,
)

_WHOLE = ("sum", "min", "max", "list", "sorted", "tuple", "any", "all")  # they go over what they are given
_FAR = 2**62  # behind the end of any list
_BY_KEYS = {"sorted": orders.ordered_by, "min": orders.smallest_by, "max": orders.largest_by}


def simplified(tree: ast.FunctionDef, outside: Outside) -> ast.FunctionDef:
    """Return a function that does the same.

    ``a < f() < c`` becomes ``a < (t := f()) and t < c``, ``a not in b`` becomes ``not a in b``,
    ``a in (1, 2)`` becomes comparisons, ``sum(x for x in y)`` becomes ``sum([x for x in y])``,
    ``x[i] += 1`` becomes ``b = x; k = i; b[k] = b[k] + 1``, ``sorted(x, key=f)`` sorts by
    ``[f(a) for a in x]``, ``max(range(n))`` goes over ``list(range(n))``, and the targets of a comprehension
    get names that nothing else has. `dietcode.programs.statements` says what becomes of statements, and
    `dietcode.programs.cells` what becomes of ``nonlocal``.

    Parameters
    ----------
    tree : FunctionDef
    outside : callable
        Whether a name that is not local stands for something, and that.
    """
    tree = with_cells(with_caches(tree, outside))
    own = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    own |= {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
    own |= {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    found = _Simplification(outside, own, tree).visit(tree)
    assert isinstance(found, ast.FunctionDef)  # as it was
    found = without_lambdas(found)
    return ast.fix_missing_locations(found)


class _Simplification(DisplaySimplification, ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        node.comparators = [
            at(one, ast.Tuple(one.elts, ast.Load()))
            if isinstance(op, ast.In | ast.NotIn) and _is_known(one)
            else call(one, "list", one)
            if isinstance(op, ast.In | ast.NotIn) and is_looped(one)
            else one
            for op, one in zip(node.ops, node.comparators, strict=True)
        ]
        self.generic_visit(node)
        if len(node.ops) == 1:
            return self._single(node)
        parts: list[ast.expr] = []
        left = node.left
        for k, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            is_last = k == len(node.ops) - 1
            kept = right if is_last or isinstance(right, ast.Constant) else bound(node, f"middle {k}", right)
            parts.append(self._single(at(node, ast.Compare(left, [op], [kept]))))
            left = kept if isinstance(kept, ast.Constant) else load(node, f"middle {k}")
        return at(node, ast.BoolOp(ast.And(), parts))

    def _single(self, node: ast.Compare) -> ast.expr:
        """Return a comparison of two without ``not in``, and without ``in`` a tuple of the text."""
        (op,), (right,) = node.ops, node.comparators
        if isinstance(op, ast.NotIn):
            inner = self._single(at(node, ast.Compare(node.left, [ast.In()], [right])))
            return at(node, ast.UnaryOp(ast.Not(), inner))
        is_of_text = isinstance(right, ast.Tuple | ast.List) and right.elts
        if not isinstance(op, ast.In) or not is_of_text:
            return node
        assert isinstance(right, ast.Tuple | ast.List)  # mypy does not see it through the name
        if not all(isinstance(one, ast.Constant) for one in right.elts):
            return node
        first = bound(node, "sought", node.left)
        sides = [first, *(load(node, "sought") for _ in right.elts[1:])]
        parts: list[ast.expr] = [
            at(node, ast.Compare(side, [ast.Eq()], [one]))
            for side, one in zip(sides, right.elts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else at(node, ast.BoolOp(ast.Or(), parts))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Simplify the function, and those within it."""
        before = self._within
        self._within = functions_named(node, before)
        made: list[ast.stmt] = [node] if node is self._tree else with_variables(node)
        *begin, last = made
        assert isinstance(last, ast.FunctionDef)  # as it was
        found = [*self._all(begin), self.generic_visit(without_yield(last))]
        self._within = before
        return found if begin else found[0]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        word = node.func.id if isinstance(node.func, ast.Name) else ""
        if word in _WHOLE or word in ("len", *LOOPED):
            node.args = list(map(self._members, node.args))
        begun = self._begun(node, word)
        if begun is not None:
            made: ast.AST = self.visit(begun)
            return made
        self._note_generators(node, word)
        if word in ("zip", "min", "max") and len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
            given = node.args[0].value
            same = the_same(given) if word == "zip" else None
            if same is not None:
                node.args = same
                return self.visit_Call(node)
            node.args = [given]
            if word == "zip" and not node.keywords:
                return self._all_of_calls(call(node, constant(lists.columns), given))
        elif word in ("min", "max") and any(isinstance(one, ast.Starred) for one in node.args):
            node.args = [at(node, ast.List(node.args, ast.Load()))]  # of one or more, as Python takes them
        if self._stands_for(node.func) is collections.deque:
            node.args = [*map(as_list, node.args[:1]), *node.args[1:]]
        self.generic_visit(node)
        if self._stands_for(node.func) is collections.Counter and len(node.args) == 1:
            node.args = [as_list(node.args[0])]
        if self._stands_for(node.func) is collections.deque and len(node.args) < 2 and not node.keywords:
            node.func = at(node, ast.Name("list", ast.Load()))
        if word == "enumerate" and [one.arg for one in node.keywords] == ["start"] and len(node.args) == 1:
            return call(node, node.func, node.args[0], node.keywords[0].value)
        known = rewritten(node, self._stands_for(node.func))
        if known is not None:
            again: ast.AST = self.visit(known)
            return again
        return MADE[word](node) if word in MADE else self._of_whole(node, word)

    def _begun(self, node: ast.Call, word: str) -> ast.expr | None:
        """Return what a call is, before its arguments are simplified; None where it stays."""
        found = self._lazy(node, word) if word in lists.LAZY and node.args else None
        if is_mapped(node, word):
            found = mapped(node, word, self._stands_for)
        if self._stands_for(node.func) is itertools.islice:
            found = cycled(node, self._stands_for)
        found = found or marked_container(node, self._stands_for(node.func))
        found = found or parent_method(node, self._tree, self._outside)
        return found or (with_names_of_stars(node) if word not in LOOPED else None)

    def _note_generators(self, node: ast.Call, word: str) -> None:
        """Write generators that a call is given as lists, and note where all items are there first."""
        is_join = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        if is_join or (word in (*_WHOLE, "set", "dict") and word not in lists.LAZY):
            for one in node.args[:1]:
                mark_whole(one)
        is_added = isinstance(node.func, ast.Attribute) and node.func.attr in ("extend", "update")
        if is_join or is_added or word in LOOPED:
            node.args = [as_list(one) for one in node.args]
        if is_join or is_added:
            node.args = [call(one, "list", one) if is_looped(one) else one for one in node.args]

    def _lazy(self, node: ast.Call, word: str) -> ast.expr | None:
        """Return ``any``, ``all`` or ``next`` of a generator as what stops early; None for all else."""
        own = as_generator(node.args[0], self._stands_for)
        if own is not None and len(node.args) <= 1 + (word == "next") and not node.keywords:
            given = renamed(at(own, ast.ListComp(own.elt, own.generators)))
            return call(node, constant(lists.LAZY[word]), given, *node.args[1:])
        is_of_generator = isinstance(node.args[0], ast.Call) and self._is_generator(node.args[0].func)
        return first_of(node, node.args[0]) if word == "next" and is_of_generator else None

    def _all_of_calls(self, node: ast.expr) -> ast.AST:
        found: ast.AST = self.generic_visit(node)
        return found

    def _of_whole(self, node: ast.Call, word: str) -> ast.AST:
        if word not in _WHOLE or not node.args:
            return self._divided(node) if word == "divmod" and len(node.args) == 2 else node
        given = node.args[0]
        is_only = len(node.args) == 1 or word == "sum"
        if is_only and isinstance(given, ast.GeneratorExp):
            node.args[0] = renamed(at(given, ast.ListComp(given.elt, given.generators)))
        elif is_only and word != "list" and is_looped(given):
            node.args[0] = call(given, "list", given)
        if word == "sum" and len(node.args) == 1 and [one.arg for one in node.keywords] == ["start"]:
            node.args, node.keywords = [*node.args, node.keywords[0].value], []
        if word == "sum" and len(node.args) == 2 and not node.keywords:
            return call(node, constant(lists.total_from), *node.args)
        if word in _BY_KEYS and node.keywords and len(node.args) == 1:
            return self._by_keys(node, word)
        return node

    def _divided(self, node: ast.Call) -> ast.AST:
        left, right = bound(node, "divided", node.args[0]), bound(node, "divisor", node.args[1])
        whole = at(node, ast.BinOp(left, ast.FloorDiv(), right))
        rest = at(node, ast.BinOp(load(node, "divided"), ast.Mod(), load(node, "divisor")))
        return at(node, ast.Tuple([whole, rest], ast.Load()))

    def _by_keys(self, node: ast.Call, word: str) -> ast.AST:
        """Return ``sorted``, ``min`` or ``max`` by keys; whatever else is named stays."""
        named = {one.arg: one.value for one in node.keywords}
        if set(named) - ({"key", "reverse"} if word == "sorted" else {"key", "default"}):
            return node
        items = bound(node, "items", node.args[0])
        keys = load(node, "items")
        key = named.get("key")
        if key is not None and not (isinstance(key, ast.Constant) and key.value is None):
            keys = renamed(at(node, comprehension_of(node, key, keys, self._stands_for)))
            keys = self.visit(keys)
        backwards = [named.get("reverse", ast.Constant(False))] if word == "sorted" else []
        if "default" not in named:
            return call(node, constant(_BY_KEYS[word]), items, keys, *backwards)
        found = call(node, constant(_BY_KEYS[word]), load(node, "items"), keys)
        is_some = at(node, ast.Compare(call(node, "len", items), [ast.Gt()], [at(node, ast.Constant(0))]))
        return at(node, ast.IfExp(is_some, found, named["default"]))

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        made = node.value
        begun = parent_initialiser(node, self._tree, self._outside)
        if begun is not None:
            return self.generic_visit(begun)
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == "sort":
            ordered = call(made, ast.Name("sorted", ast.Load()), made.func.value, *made.args)
            assert isinstance(ordered, ast.Call)  # it is one
            ordered.keywords = made.keywords
            node.value = call(made, constant(lists.overwrite), made.func.value, ordered)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice) and node.slice.step is not None:
            node.slice.lower = node.slice.lower or at(node, ast.Constant(None))
            node.slice.upper = node.slice.upper or at(node, ast.Constant(None))
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """``{x!r}`` -> ``{repr(x)}``."""
        if node.conversion == ord("r"):
            node.value, node.conversion = call(node, "repr", node.value), -1
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """``raise C`` -> ``raise C()``."""
        if isinstance(node.exc, ast.Name) and is_exception_class(self._stands_for(node.exc)):
            node.exc = call(node, node.exc)
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """``assert c, m`` -> ``if not c: raise AssertionError(m)``."""
        if node.msg is None:
            return self.generic_visit(node)
        error = at(node, ast.Raise(call(node, "AssertionError", node.msg), None))
        found: ast.AST = self.visit(
            at(node, ast.If(at(node, ast.UnaryOp(ast.Not(), node.test)), [error], []))
        )
        return found

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        body = without_context(node)
        return self._all(body) if body is not None else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        node.iter = self._members(node.iter)
        lazily = lazily_looped(node, self._stands_for)
        if lazily is not None:
            return self._all(lazily)
        node.target, parts = with_name_of_target(node.target)
        node.body = [*parts, *node.body]
        return self._all(loop_without_else(node)) if node.orelse else self.generic_visit(node)

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        return self._all(loop_without_else(node)) if node.orelse else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        (target, *others) = node.targets
        if not others and _is_cut(target):
            return self._all(_spliced(node, target, node.value))
        node.targets[0], parts = with_names_of_targets(target)
        if parts and not others:
            return self._all([node, *parts])
        is_lambda = isinstance(node.value, ast.Lambda) and not computed_defaults(node.value)
        if is_lambda and isinstance(target, ast.Name) and not others:
            assert isinstance(node.value, ast.Lambda)  # as is said above
            body: list[ast.stmt] = [at(node, ast.Return(node.value.body))]
            made: ast.AST = self.visit(at(node, ast.FunctionDef(target.id, node.value.args, body, [])))
            return made
        if not others:
            node.value = self._all_kept(target, node.value)
        found = taken_apart(node) or one_by_one(node)
        return self._all(found) if found is not None else self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> ast.AST | list[ast.stmt]:
        found: list[ast.stmt] = []
        for target in node.targets:
            if _is_cut(target):
                found += _spliced(node, target, at(node, ast.List([], ast.Load())))
            elif isinstance(target, ast.Subscript):
                pop = at(node, ast.Attribute(target.value, "pop", ast.Load()))
                found.append(at(node, ast.Expr(call(node, pop, target.slice))))
            else:
                return node
        return self._all(found)

    def visit_Match(self, node: ast.Match) -> ast.AST | list[ast.stmt]:
        found = chosen_case(node, self._outside)
        return self._all(found) if found is not None else self.generic_visit(node)

    def _all(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for one in body:
            made = self.visit(one)
            found += made if isinstance(made, list) else [made]
        return found

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(without_generators(node, self._stands_for))
        return renamed(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        node.value = as_list(node.value)
        if is_looped(node.value):
            node.value = call(node, "list", node.value)
        self.generic_visit(node)
        target = node.target
        if isinstance(target, ast.Name):
            return node
        found: list[ast.stmt] = [assigned(node, "base", target.value)]
        base = load(node, "base")
        if isinstance(target, ast.Attribute):
            read: ast.expr = ast.Attribute(base, target.attr, ast.Load())
            write: ast.expr = ast.Attribute(load(node, "base"), target.attr, ast.Store())
        else:
            if isinstance(target.slice, ast.Slice):
                return node
            found.append(assigned(node, "place", target.slice))
            read = ast.Subscript(base, load(node, "place"), ast.Load())
            write = ast.Subscript(load(node, "base"), load(node, "place"), ast.Store())
        changed = assigned(node, "changed", at(node, read))
        assert isinstance(changed, ast.Assign)  # it is one
        name = at(node, ast.Name(name_of(node, "changed"), ast.Store()))
        more = at(node, ast.AugAssign(name, node.op, node.value))
        last = at(node, ast.Assign([at(node, write)], load(node, "changed")))
        return [*found, changed, more, last]


def _is_cut(target: ast.expr) -> bool:
    """Whether a target is ``x[low:high]``."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Slice):
        return False
    return target.slice.step is None


def _spliced(node: ast.AST, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    """Return ``x[low:high] = value`` as a call, before which `value` is evaluated."""
    assert isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)  # as `_is_cut` says
    ends = target.slice
    low = ends.lower or at(node, ast.Constant(0))
    high = ends.upper or at(node, ast.Constant(_FAR))
    made = call(node, constant(lists.splice), target.value, low, high, load(node, "others"))
    return [assigned(node, "others", value), at(node, ast.Expr(made))]


def _is_known(node: ast.expr) -> TypeGuard[ast.Set]:
    """Whether an expression is a set of numbers and texts in the text."""
    return isinstance(node, ast.Set) and all(isinstance(one, ast.Constant) for one in node.elts)
