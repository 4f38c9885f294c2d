"""``type`` as a model's own files have it during an export: dynamic sizes are Python's numbers to it.

``type(x)`` reads no attribute of x, so that `dietcode.models.size_types` cannot answer it; but files look the
name up among their globals first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from dietcode.models.own_thread import is_own_thread
from dietcode.models.sources import is_installed, is_of_libraries, is_of_python

_NAME = "type"


class _TypeOfSizes:
    """What ``type`` is, but for dynamic sizes in the thread that exports.

    Parameters
    ----------
    kinds : mapping of type to type
        The class of Python's numbers for each of PyTorch's of sizes.
    """

    def __init__(self, kinds: Mapping[type, type]) -> None:
        self._kinds: dict[Any, Any] = {**kinds, type: self}

    def __call__(self, *args: Any, **options: Any) -> Any:
        found = type(*args, **options)
        return self._kinds.get(found, found) if is_own_thread() else found

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(self, subclass: Any) -> bool:
        return issubclass(subclass, type)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type,)

    def __getattr__(self, name: str) -> Any:
        return getattr(type, name)

    def __getitem__(self, parameters: Any) -> Any:
        return type[parameters]

    def __or__(self, other: Any) -> Any:
        return type | other

    def __ror__(self, other: Any) -> Any:
        return other | type

    def __eq__(self, other: object) -> bool:
        return other is self or other is type

    def __hash__(self) -> int:
        return hash(type)


@contextmanager
def types_of_sizes(module: Any, kinds: Mapping[type, type]) -> Iterator[None]:
    """Let ``type(size)`` be a class of numbers in the files of a model, for as long as this lasts.

    Parameters
    ----------
    module : torch.nn.Module
    kinds : mapping of type to type
    """
    own = _TypeOfSizes(kinds)
    changed = [names for names in _files_of(module) if _NAME not in names]
    for names in changed:
        names[_NAME] = own
    try:
        yield
    finally:
        for names in changed:
            if names.get(_NAME) is own:
                del names[_NAME]


def _files_of(module: Any) -> list[dict[str, Any]]:
    """Return the globals of all files of a model's author, and of installed packages with layers of it.

    Programs export layers of this package's own, whose files ask for types while a size is looked at.
    """
    of_others = {"torch", "builtins", __name__.partition(".")[0]}
    classes = {cls for layer in module.modules() for cls in type(layer).__mro__}
    classes = {cls for cls in classes if cls.__module__.partition(".")[0] not in of_others}
    packages = {cls.__module__.partition(".")[0] for cls in classes}
    found = [
        one.__globals__
        for cls in classes
        for one in vars(cls).values()
        if isinstance(one, FunctionType) and not is_of_libraries(one.__code__.co_filename)
    ]
    for name, loaded in list(sys.modules.items()):
        names = getattr(loaded, "__dict__", {})
        file = names.get("__file__") or ""
        if name == "__main__" or name.partition(".")[0] in packages or _is_authors(file):
            found.append(names)
    return list({id(one): one for one in found if isinstance(one, dict)}.values())


def _is_authors(file: Any) -> bool:
    return (
        isinstance(file, str)
        and file.endswith(".py")
        and not (is_of_libraries(file) or is_of_python(file) or is_installed(file))
    )
