"""Sets that a program makes, in the words that programs may have: their members in a list.

What a program may see of a set does not depend on the order of its members, which Python does not say. These
functions are compiled as those of `dietcode.programs.lists` are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dietcode.runtime.programs.instances import find

ALLOWED = "|, &, -, ^, ==, !=, <=, >=, < and > of two sets that the program makes; methods, as s.union(items)"


@dataclass(eq=False)
class MemberSet:
    """A set while samples run, and a record of the program's."""

    set_members: list[Any]

    is_frozen: ClassVar[bool] = False  # a frozenset, of which ``|=`` makes another one

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.set_members)


MemberSet.__name__ = "set"  # which records are known by
SET = ("record", "set")  # its kind


def made(items: Sequence[Any]) -> MemberSet:
    """Return ``set(items)``."""
    return updated(MemberSet([]), items)


def copied(own: MemberSet) -> MemberSet:
    """Return ``own.copy()``."""
    return MemberSet(list(own.set_members))


def has(one: Any, own: MemberSet) -> bool:
    """Return ``one in own``."""
    return find(own.set_members, one) >= 0


def add(own: MemberSet, one: Any) -> None:
    """Do ``own.add(one)``."""
    if find(own.set_members, one) < 0:
        own.set_members.append(one)


def discard(own: MemberSet, one: Any) -> None:
    """Do ``own.discard(one)``."""
    at = find(own.set_members, one)
    if at >= 0:
        own.set_members.pop(at)


def remove(own: MemberSet, one: Any) -> None:
    """Do ``own.remove(one)``."""
    at = find(own.set_members, one)
    if at < 0:
        raise KeyError("a member that the set lacks")
    own.set_members.pop(at)


def update(own: MemberSet, others: Sequence[Any]) -> None:
    """Do ``own.update(others)``."""
    for one in others:  # not by `add`: where no sample has any, this line is not reached, and could not call
        if find(own.set_members, one) < 0:
            own.set_members.append(one)


def updated(own: MemberSet, others: Sequence[Any]) -> MemberSet:
    """Do ``own |= others``, and return the set."""
    update(own, others)
    return own


def frozen(own: MemberSet) -> MemberSet:
    """Return a set that is a frozenset."""
    return own


def keep(own: MemberSet, others: Sequence[Any]) -> None:
    """Do ``own.intersection_update(others)``."""
    found: list[Any] = []
    for one in own.set_members:
        if find(others, one) >= 0:
            found.append(one)
    own.set_members = found


def drop(own: MemberSet, others: Sequence[Any]) -> None:
    """Do ``own.difference_update(others)``."""
    found: list[Any] = []
    for one in own.set_members:
        if find(others, one) < 0:
            found.append(one)
    own.set_members = found


def kept(own: MemberSet, others: Sequence[Any]) -> MemberSet:
    """Do ``own &= others``, and return the set."""
    keep(own, others)
    return own


def dropped(own: MemberSet, others: Sequence[Any]) -> MemberSet:
    """Do ``own -= others``, and return the set."""
    drop(own, others)
    return own


def clear(own: MemberSet) -> None:
    """Do ``own.clear()``."""
    own.set_members = []


def union(own: MemberSet, others: Sequence[Any]) -> MemberSet:
    """Return ``own | others``."""
    return updated(copied(own), others)


def intersection(own: MemberSet, others: Sequence[Any]) -> MemberSet:
    """Return ``own & others``."""
    found: list[Any] = []
    for one in own.set_members:
        if find(others, one) >= 0:
            found.append(one)
    return MemberSet(found)


def difference(own: MemberSet, others: Sequence[Any]) -> MemberSet:
    """Return ``own - others``."""
    found: list[Any] = []
    for one in own.set_members:
        if find(others, one) < 0:
            found.append(one)
    return MemberSet(found)


def only_in_one(own: MemberSet, others: Sequence[Any]) -> MemberSet:
    """Return ``own ^ others``."""
    found: list[Any] = []
    for one in own.set_members:
        if find(others, one) < 0:
            found.append(one)
    for one in others:
        if find(own.set_members, one) < 0 and find(found, one) < 0:
            found.append(one)
    return MemberSet(found)


def is_within(own: MemberSet, others: Sequence[Any]) -> bool:
    """Return ``own <= others``."""
    for one in own.set_members:  # noqa: SIM110
        if find(others, one) < 0:
            return False
    return True


def is_around(own: MemberSet, others: Sequence[Any]) -> bool:
    """Return ``own >= others``."""
    for one in others:  # noqa: SIM110
        if find(own.set_members, one) < 0:
            return False
    return True


def is_apart(own: MemberSet, others: Sequence[Any]) -> bool:
    """Return ``own.isdisjoint(others)``."""
    for one in others:  # noqa: SIM110
        if find(own.set_members, one) >= 0:
            return False
    return True


def is_equal(own: MemberSet, others: Sequence[Any]) -> bool:
    """Return ``own == others``, of two sets."""
    if len(own.set_members) != len(others):
        return False
    for one in others:  # noqa: SIM110
        if find(own.set_members, one) < 0:
            return False
    return True


def differs(own: MemberSet, others: Sequence[Any]) -> bool:
    """Return ``own != others``, of two sets."""
    return not is_equal(own, others)


def is_below(own: MemberSet, others: Sequence[Any]) -> bool:
    """Return ``own < others``, of two sets."""
    is_part = is_within(own, others)
    return is_part and len(own.set_members) < len(others)


def is_above(own: MemberSet, others: Sequence[Any]) -> bool:
    """Return ``own > others``, of two sets."""
    is_whole = is_around(own, others)
    return is_whole and len(own.set_members) > len(others)


METHODS: dict[tuple[str, int], Callable[..., Any]] = {  # by how many arguments there are
    ("add", 1): add,
    ("discard", 1): discard,
    ("remove", 1): remove,
    ("update", 1): update,
    ("clear", 0): clear,
    ("copy", 0): copied,
    ("intersection_update", 1): keep,
    ("difference_update", 1): drop,
    ("union", 1): union,
    ("intersection", 1): intersection,
    ("difference", 1): difference,
    ("symmetric_difference", 1): only_in_one,
    ("issubset", 1): is_within,
    ("issuperset", 1): is_around,
    ("isdisjoint", 1): is_apart,
}
OPERATORS: dict[str, Callable[..., Any]] = {  # by the names that the module operator has for them
    "or_": union,
    "and_": intersection,
    "sub": difference,
    "xor": only_in_one,
    "eq": is_equal,
    "ne": differs,
    "le": is_within,
    "ge": is_around,
    "lt": is_below,
    "gt": is_above,
}
IN_PLACE: dict[str, Callable[..., Any]] = {"or_": updated, "and_": kept, "sub": dropped}


def is_own(function: Callable[..., Any], position: int) -> bool:
    """Whether a function takes an argument as the set that it is; it takes others as lists of members."""
    return function.__module__ == __name__ and function is not made and position == int(function is has)


def as_frozen(found: Any, own: MemberSet) -> Any:
    """Return what was made of a set: a frozenset's is one, too."""
    if isinstance(found, MemberSet):
        found.is_frozen = own.is_frozen  # type: ignore[misc]  # of this one, and not of the class
    return found


def has_one(value: Any, cls: Any) -> bool:
    """Whether a result has an object of a class in it."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, cls):
            return True
        if id(one) not in seen:
            seen.add(id(one))
            waiting += one if isinstance(one, list | tuple) else getattr(one, "__dict__", {}).values()
    return False
