"""The order of what is computed of groups of rows that follow each other, and what is fetched meanwhile."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.rows.body import RowBody
from dietcode.search_space.cpu.rows.group import Key, LeftToNext, RowGroup, Span, rows_of
from dietcode.search_space.cpu.rows.micro_kernel import OVERLAPS
from dietcode.search_space.rows.passes import Pass
from dietcode.search_space.tir import DTYPE, TirOps, i64
from dietcode.search_space.vectors import const


def emit_groups(
    body: RowBody, overlap: str, first: Any, height: int, count: Any, last: Any, span: Span
) -> None:
    """Compute groups of rows that follow each other, while the next rows are fetched into the caches.

    Where they overlap, the first pass of the next group comes before the last one of a group:

        first pass of group 0
        for group: passes between; first pass of the next group; last pass

    So there is work while what a pass has added up is combined across the lanes and made a quotient or a
    root of, which takes some 50 cycles, and for which the next pass waits. ``beside`` makes one loop of
    those two, so that lines are read while others are written, as a copy does it.

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
    if overlap != OVERLAPS[0]:
        _emit_overlapping(body, overlap == "beside", first, height, count, last, span)
        return
    fetched = _fetched(body)
    with T.serial(i64(0), count) as number:
        body.ahead = body.begins_of(rows_of(first, number + 1, height, last), fetched)
        body.emit(rows_of(first, number, height, last), span)
    body.ahead = {}


def _emit_overlapping(
    body: RowBody, is_beside: bool, first: Any, height: int, count: Any, last: Any, span: Span
) -> None:
    begins, known, fetched = LeftToNext("int64"), LeftToNext(DTYPE), _fetched(body)
    early, *middle, late = body.schedule.passes
    # What the first pass of a group tells goes from one iteration to the next, as where its rows begin.
    head = RowGroup(rows_of(first, i64(0), height, last))
    body.ahead = body.begins_of(rows_of(first, i64(1), height, last), fetched)
    body.enter(head)
    begins.save(head.begins)
    names = _known_after(early, height)
    known.save(dict.fromkeys(names, const(0.0, 1)))
    with T.If(count > i64(0)), T.Then():
        body.go_through([(early, head)], span)
        known.save({key: head.scalars[key] for key in names})
    with T.serial(i64(0), count) as number:
        group = RowGroup(rows_of(first, number, height, last), begins.take())
        group.scratch = _scratch_of(body, number, height)
        following = RowGroup(rows_of(first, number + 1, height, last))
        following.scratch = _scratch_of(body, number + 1, height)
        following.begins = body.begins(following.rows)
        begins.save(following.begins)
        body.enter(group)
        group.scalars |= known.take()
        body.ahead = {name: [following.begins[name, i] for i in range(height)] for name in fetched}
        for one in middle:
            body.go_through([(one, group)], span)
        with T.If(number + 1 < count):
            with T.Then():
                if not middle:
                    body.ahead = body.begins_of(rows_of(first, number + 2, height, last), fetched)
                body.enter(following)
                beside = [(late, group)] if is_beside else []
                body.go_through([(early, following), *beside], span)
                known.save({key: following.scalars[key] for key in names})
                if is_beside:
                    body.leave(group)
            if is_beside:
                with T.Else():
                    body.go_through([(late, group)], span)
                    body.leave(group)
        if not is_beside:
            body.go_through([(late, group)], span)
            body.leave(group)
    body.ahead = {}


def _known_after(one: Pass, height: int) -> list[Key]:
    """Return the values of a whole row that are known after a pass."""
    return [(p.name, i) for p in (*one.reductions, *one.scalars) for i in range(height)]


def _scratch_of(body: RowBody, number: Any, height: int) -> Any:
    """Return where a group's values begin: two of them take turns where they overlap."""
    if not body.schedule.overlaps:
        return i64(0)
    size = body.pitch * (len(body.schedule.kept) * height)
    return TirOps().bind(tirx.truncmod(number, i64(2)) * size)


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
