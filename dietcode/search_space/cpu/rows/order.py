"""The order of what is computed of groups of rows that follow each other, and what is fetched meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.rows.body import RowBody
from dietcode.search_space.cpu.rows.group import Key, LeftToNext, RowGroup, Span, rows_of
from dietcode.search_space.rows.passes import Pass
from dietcode.search_space.tir import DTYPE, TirOps, i64
from dietcode.search_space.vectors import const

RowsOf = Callable[[Any], list[Any]]
"""The rows of a group, by its number."""


def emit_groups(
    body: RowBody, overlap: str, first: Any, height: int, count: Any, last: Any, span: Span
) -> None:
    """Compute groups of rows that follow each other, while the next rows are fetched into the caches.

    Parameters
    ----------
    overlap : str
        Of `RowKernel`.
    first, last : int64 expressions
        The first row of the first group, and the last row that exists.
    height : int
        Rows of a group.
    count : int64 expression
        Groups.
    """
    emit = {"none": _emit_apart, "before": _emit_before, "beside": _emit_beside}[overlap]
    emit(body, lambda number: rows_of(first, number, height, last), height, count, span)
    body.ahead = {}


def _emit_apart(body: RowBody, rows: RowsOf, height: int, count: Any, span: Span) -> None:
    fetched = _fetched(body)
    with T.serial(i64(0), count) as number:
        body.ahead = body.begins_of(rows(number + 1), fetched)
        body.emit(rows(number), span)


def _emit_before(body: RowBody, rows: RowsOf, height: int, count: Any, span: Span) -> None:
    """Compute the first pass of the next group before the last one of a group.

        first pass of group 0
        for group: passes between; first pass of the next group; last pass

    So there is work while what a pass has added up is combined across the lanes and made a quotient or a
    root of, which takes some 50 cycles, and for which the next pass waits.
    """
    begins, known, fetched = LeftToNext("int64"), LeftToNext(DTYPE), _fetched(body)
    early, *middle, late = body.schedule.passes
    # What the first pass of a group tells goes from one iteration to the next, as where its rows begin.
    head = RowGroup(rows(i64(0)))
    body.ahead = body.begins_of(rows(i64(1)), fetched)
    body.enter(head)
    begins.save(head.begins)
    names = _known_after([early], height)
    known.save(dict.fromkeys(names, const(0.0, 1)))
    with T.If(count > i64(0)), T.Then():
        body.go_through([(early, head)], span)
        known.save({key: head.scalars[key] for key in names})
    with T.serial(i64(0), count) as number:
        group, following = RowGroup(rows(number), begins.take()), RowGroup(rows(number + 1))
        group.scratch = _scratch_of(body, "before", number, height)
        following.scratch = _scratch_of(body, "before", number + 1, height)
        following.begins = body.begins(following.rows)
        begins.save(following.begins)
        body.enter(group)
        group.scalars |= known.take()
        body.ahead = {name: [following.begins[name, i] for i in range(height)] for name in fetched}
        for one in middle:
            body.go_through([(one, group)], span)
        with T.If(number + 1 < count), T.Then():
            if not middle:
                body.ahead = body.begins_of(rows(number + 2), fetched)
            body.enter(following)
            body.go_through([(early, following)], span)
            known.save({key: following.scalars[key] for key in names})
        body.go_through([(late, group)], span)
        body.leave(group)


def _emit_beside(body: RowBody, rows: RowsOf, height: int, count: Any, span: Span) -> None:
    """Compute the last pass of a group in one loop with the pass before it of the next one, and so on.

        for group: one loop: first pass of a group further on; …; the second last of the next; last pass

    So nothing waits for what a pass has added up, and lines are read while others are written, as a copy
    does it. Where one of those groups does not exist, at the beginning and at the end, each pass has a loop.
    """
    bind, passes, fetched = TirOps().bind, body.schedule.passes, _fetched(body)
    most = len(passes) - 1
    # What goes from one iteration to the next: of the groups of which pass 0, 1, … was the last one.
    left = [(LeftToNext("int64"), LeftToNext(DTYPE)) for _ in range(most)]
    names = [_known_after(passes[: done + 1], height) for done in range(most)]
    for (begins, known), own in zip(left, names, strict=True):
        begins.save(dict.fromkeys(body.begin_keys(height), i64(0)))
        known.save(dict.fromkeys(own, const(0.0, 1)))

    def entered(number: Any, which: int) -> RowGroup:
        """Return a group that has come to a pass."""
        group = RowGroup(rows(number), left[which - 1][0].take() if which else {})
        group.scratch = _scratch_of(body, "beside", number, height)
        body.enter(group)
        if which:
            group.scalars |= left[which - 1][1].take()
        return group

    def leave(group: RowGroup, which: int) -> None:
        """Leave a group to its next pass, or write the rest of its outputs."""
        if which == most:
            body.leave(group)
            return
        left[which][0].save(group.begins)
        left[which][1].save({key: group.scalars[key] for key in names[which]})

    with T.serial(i64(0), count + most) as step:
        numbers = [bind(step - which) for which in range(len(passes))]
        body.ahead = body.begins_of(rows(step + 1), fetched)
        with T.If(tirx.all(step < count, step >= i64(most))):
            with T.Then():
                groups = [entered(number, which) for which, number in enumerate(numbers)]
                body.go_through(list(zip(passes, groups, strict=True)), span)
                for which, group in enumerate(groups):
                    leave(group, which)
            with T.Else():
                for which in reversed(range(len(passes))):
                    number = numbers[which]
                    with T.If(tirx.all(number >= i64(0), number < count)), T.Then():
                        group = entered(number, which)
                        body.go_through([(passes[which], group)], span)
                        leave(group, which)


def _known_after(passes: Sequence[Pass], height: int) -> list[Key]:
    """Return the values of a whole row that are known after some passes."""
    return [(p.name, i) for one in passes for p in (*one.reductions, *one.scalars) for i in range(height)]


def _scratch_of(body: RowBody, overlap: str, number: Any, height: int) -> Any:
    """Return where a group's values begin: those that are in work at once take turns."""
    turns = body.schedule.num_groups(overlap)
    if turns == 1:
        return i64(0)
    size = body.pitch * (len(body.schedule.kept) * height)
    return TirOps().bind(tirx.truncmod(number, i64(turns)) * size)


def _fetched(body: RowBody) -> list[str]:
    """What is fetched ahead: gathered rows, and where there are several passes all that move on.

    No processor foresees where a gathered row lies, and while passes compute what L1 holds few read on.
    """
    if body.fetch == "none":
        return []
    problem = body.problem
    columns = "".join(problem.columns)
    moving = set(problem.rows[-1:] if len(body.schedule.passes) > 1 else ())
    found = []
    for name, read in problem.reads.items():
        own = problem.seen_as(name)
        lies_apart = bool(read.shift or read.taps or read.reorders)
        if read.positions or (columns in own and moving & set(own) and not lies_apart):
            found.append(name)
    return found
