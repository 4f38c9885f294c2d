"""Code over as many registers as needed becomes code over few; what nobody reads goes."""

from __future__ import annotations

from collections.abc import Sequence

from dietcode.programs.code import Instruction, Label

_PURE = frozenset(
    (
        "const",
        "tensor",
        "move",
        "tuple",
        "list",
        "block",
        "len",
        "get",
        "field",
        "kind",
        "as",
        "lookup",
        "value",
        "format",
        "join",
        "order",
        "concatenate",
        "characters",
        "parsed",
        "ordinal",
        "character",
        "rounded",
    )
)
_LEAVING = ("jump", "return", "raise", "throw")


def finished(instructions: Sequence[Instruction], num_parameters: int) -> tuple[list[Instruction], int]:
    """Return the instructions that are needed, over few registers, and how many these are.

    Parameters
    ----------
    instructions : sequence of Instruction
        They are changed.
    num_parameters : int
        The first registers, which stay.
    """
    code = _reachable(list(instructions))
    while True:
        alive = _alive_after(code)
        kept = [one for one, after in zip(code, alive, strict=True) if _is_needed(one, after)]
        changed = len(kept) < len(code)
        for one, after in zip(code, alive, strict=True):
            if one.group is not None:
                changed |= _narrowed(one, after)
        code = kept
        if not changed:
            break
    colors, many = _colored(code, num_parameters)
    for one in code:
        one.writes = [colors[number] for number in one.writes]
        one.reads = [colors[number] for number in one.reads]
    code = [one for one in code if one.word != "move" or one.writes != one.reads]
    return code, many


def read_before_written(instructions: Sequence[Instruction], num_parameters: int) -> set[int]:
    """Return the registers that some way through the code reads first, but for parameters."""
    return _alive_before(_reachable(list(instructions))) - set(range(num_parameters))


def _reachable(code: list[Instruction]) -> list[Instruction]:
    """Return code without what follows a jump, return or error up to the next label that is used."""
    while True:
        used = {id(one.target) for one in code if one.word in ("jump", "else")}
        used |= {id(one.handler.label) for one in code if one.handler is not None}
        kept: list[Instruction] = []
        is_reached = True
        for one in code:
            if one.word == "label":
                is_reached = is_reached or id(one.target) in used
                if id(one.target) not in used:
                    continue
            if is_reached:
                kept.append(one)
            if one.word in _LEAVING:
                is_reached = False
        kept = [
            one
            for at, one in enumerate(kept)
            if one.word != "jump" or at + 1 == len(kept) or kept[at + 1].target is not one.target
        ]
        if len(kept) == len(code):
            return kept
        code = kept


def _successors(code: Sequence[Instruction]) -> list[list[int]]:
    places: dict[int, int] = {id(one.target): at for at, one in enumerate(code) if one.word == "label"}
    found = []
    for at, one in enumerate(code):
        own = [] if one.word in _LEAVING else [at + 1]
        if one.word in ("jump", "else"):
            assert isinstance(one.target, Label)  # a jump has one
            own.append(places[id(one.target)])
        found.append([place for place in own if place < len(code)])
    return found


def _alive_after(code: Sequence[Instruction]) -> list[set[int]]:
    """Return the registers that are read later, after each instruction."""
    successors = _successors(code)
    places = {id(one.target): at for at, one in enumerate(code) if one.word == "label"}
    handlers = [None if one.handler is None else places[id(one.handler.label)] for one in code]
    before: list[set[int]] = [set() for _ in code]
    after: list[set[int]] = [set() for _ in code]
    changed = True
    while changed:
        changed = False
        for at in range(len(code) - 1, -1, -1):
            after[at] = set().union(*(before[place] for place in successors[at]))
            found = (after[at] - set(code[at].writes)) | set(code[at].reads)
            own = handlers[at]
            if own is not None:  # it has not written then
                found |= before[own]
            if found != before[at]:
                before[at] = found
                changed = True
    return after


def _is_needed(one: Instruction, alive: set[int]) -> bool:
    """Whether something reads what an instruction writes, or it may find that an item is not there."""
    is_pure = one.word in _PURE and (one.word != "get" or one.is_sure)
    return not is_pure or not alive.isdisjoint(one.writes)


def _narrowed(one: Instruction, alive: set[int]) -> bool:
    """Take from a block the results and operands that nobody needs; returns whether there were some."""
    group = one.group
    assert group is not None
    pairs = [(w, result) for w, result in zip(one.writes, group.results, strict=True) if w in alive]
    if not pairs:
        return False
    is_same = len(pairs) == len(one.writes)
    one.writes = [number for number, _ in pairs]
    group.results = [result for _, result in pairs]
    many = len(group.operands)
    group.without_unused()
    one.reads = [operand.number for operand in group.operands]
    return not is_same or len(group.operands) < many


def _colored(code: Sequence[Instruction], num_parameters: int) -> tuple[dict[int, int], int]:
    """Return a register for each of many, such that those that are alive together differ."""
    alive = _alive_after(code)
    conflicts: dict[int, set[int]] = {number: set() for number in range(num_parameters)}
    wishes: dict[int, list[int]] = {}
    for one, after in zip(code, alive, strict=True):
        for number in (*one.writes, *one.reads):
            conflicts.setdefault(number, set())
        for number in one.writes:
            others = (after | set(one.writes)) - {number}
            if one.word == "move":
                others -= set(one.reads)
                wishes.setdefault(number, []).append(one.reads[0])
                wishes.setdefault(one.reads[0], []).append(number)
            for other in others:
                conflicts.setdefault(other, set()).add(number)
                conflicts[number].add(other)
    for number in range(num_parameters):  # they are all there from the start
        conflicts[number] |= set(range(num_parameters)) - {number}
        entry = _alive_before(code)
        for other in entry - {number}:
            conflicts.setdefault(other, set()).add(number)
            conflicts[number].add(other)
    colors = {number: number for number in range(num_parameters)}
    for number in sorted(conflicts):
        if number in colors:
            continue
        taken = {colors[other] for other in conflicts[number] if other in colors}
        wanted = [colors[other] for other in wishes.get(number, ()) if other in colors]
        free = [color for color in wanted if color not in taken]
        color = free[0] if free else next(color for color in range(len(conflicts) + 1) if color not in taken)
        colors[number] = color
    return colors, max(colors.values(), default=-1) + 1


def _alive_before(code: Sequence[Instruction]) -> set[int]:
    if not code:
        return set()
    return (_alive_after(code)[0] - set(code[0].writes)) | set(code[0].reads)
