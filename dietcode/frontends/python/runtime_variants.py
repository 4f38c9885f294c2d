"""Variants of regions, from what samples show to what the runtime takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dietcode.frontends.python.blocks import FoundVariant
from dietcode.runtime.recorded.variants import Variant


def runtime_variant(made: FoundVariant, constants: list[str]) -> Variant:
    """Return a variant as the runtime has it, which notes one block or returns constants.

    Parameters
    ----------
    made : Variant
        With classes and names of constants.
    constants : list of str
        Gets the names that it lacks.
    """
    if made.block is None:
        names = iter(made.constants)

        def place() -> int:
            name = next(names)
            if name not in constants:
                constants.append(name)
            return constants.index(name)

        return Variant(made.specs, [], _of_constants(made.result, place))
    count = sum(1 for spec in made.specs for _ in _leaves_in(spec))
    notes = [(made.block, list(range(count)))]
    return Variant(made.specs, notes, _named(made.result), made.weights, made.limits)


def _leaves_in(spec: Any) -> Iterator[Any]:
    if spec[0] in ("tensor", "int", "float"):
        yield spec
    elif spec[0] in ("tuple", "list", "slice", "record"):
        for one in spec[-1]:
            yield from _leaves_in(one)


def _named(result: Any) -> Any:
    """Return a result's tree with classes by their names."""
    word = result[0]
    if word in ("tuple", "list"):
        return [word, [_named(one) for one in result[1]]]
    if word == "record":
        return [word, _class_name(result), [_named(one) for one in result[2]]]
    return result


def _class_name(result: Any) -> str:
    cls = result[1][0]
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__qualname__}"


def _of_constants(result: Any, place: Callable[[], int]) -> Any:
    word = result[0]
    if word == "result":
        return ["made", place(), result[1]]
    if word in ("tuple", "list"):
        return [word, [_of_constants(one, place) for one in result[1]]]
    if word == "record":
        return [word, _class_name(result), [_of_constants(one, place) for one in result[2]]]
    return result
