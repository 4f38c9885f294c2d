"""A recorded program in a call: what regions are for the arguments that come, and what ran eagerly."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from dietcode.runtime import recorder
from dietcode.runtime.recorded.describing import Names, UndescribedError
from dietcode.runtime.recorded.regions import UnitParts, region_function, rewritten
from dietcode.runtime.recorded.units import Replacement, SourceUnit
from dietcode.runtime.recorded.variants import SITES, RecordedRegion, Type, Variant, bound_weights, words_of

_MOST_BOUND = 64  # variants of a region in the recorder: one for each module that it is called with
_of_thread = threading.local()
_install_lock = threading.Lock()
_active: dict[tuple[str, str], Rewritten] = {}  # what functions have now


def current_session() -> Session | None:
    """Return the session of this thread's innermost call; None outside of one."""
    stack = getattr(_of_thread, "stack", None)
    return stack[-1].session if stack else None


class _Call(NamedTuple):
    """What a call has for itself: threads share a session."""

    session: Session
    names: Names
    tried: set[tuple[Any, str]]  # bound, by this call or another thread meanwhile, and called since


class Session:
    """What a program's regions are on one machine.

    Parameters
    ----------
    regions : sequence of RecordedRegion
    machine : recorder.Machine
    types : sequence of Type
        Of the machine.
    classes : callable
        ``(unit, name) -> class`` of named tuples.
    accepts : callable
        ``([(variant, tensors by the names of its weights)]) -> variant``: the one whose blocks were made for
        these weights, or None.
    assigned : collection of str
        Attributes that functions of the program set.
    """

    def __init__(
        self,
        regions: Sequence[RecordedRegion],
        machine: recorder.Machine,
        types: Sequence[Type],
        classes: Callable[[SourceUnit, str], Any],
        accepts: Callable[[Sequence[tuple[Variant, dict[str, Any]]]], Variant | None],
        assigned: Collection[str],
    ) -> None:
        self.names = Names(assigned)
        self.machine, self.types = machine, list(types)
        self._regions = {
            (one.unit.file, one.unit.qualname, one.unit.digest, one.region): one for one in regions
        }
        self._classes, self._accepts = classes, accepts
        self._bound: dict[Any, set[str]] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Session:
        """Be the session of this thread."""
        if not hasattr(_of_thread, "stack"):
            _of_thread.stack = []
        _of_thread.stack.append(_Call(self, self.names, set()))
        return self

    def __exit__(self, *_: Any) -> None:
        """Be it no more."""
        _of_thread.stack.pop()

    def missed(
        self, key: Any, site: recorder.Site, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        """Return what a region gives for arguments that no variant of the recorder matches."""
        region = self._regions.get(key)
        if region is None:  # of another program, which shares the function
            return function(*args)
        try:
            call = _of_thread.stack[-1]
            variants, described = region.variants_of(args, call.names, function)
            numbers = with_numbers(args)
            if numbers is not None:
                return site.call(*numbers)
            name = "|".join(str(id(one)) for one in described.roots)
            bound = f"{name}|{described.specs}"
            if (key, bound) in call.tried:
                raise UndescribedError("numbers or tensors that its kernels do not take")
            call.tried.add((key, bound))
            with self._lock:
                known = self._bound.setdefault(key, set())
                if bound not in known:
                    known.add(bound)
                    self._bind(site, region, variants, described, function, len(known))
        except UndescribedError as error:
            region.eager[str(error)] += 1
            return function(*args)
        return site.call(*args)

    def _bind(
        self,
        site: recorder.Site,
        region: RecordedRegion,
        variants: Sequence[Variant],
        described: Any,
        function: Callable[..., Any],
        count: int,
    ) -> None:
        """Let a site take the arguments that are described."""
        if count > _MOST_BOUND:
            raise UndescribedError(f"over {_MOST_BOUND} modules or functions")
        roots = described.roots
        variant = self._accepts([(one, bound_weights(one, roots, function)) for one in variants])
        if variant is None:
            raise UndescribedError("other weights than those that it was compiled with")
        words, objects = words_of(variant, self.types, roots, lambda name: self._classes(region.unit, name))
        site.add(self.machine, words, objects)


def with_numbers(args: Sequence[Any]) -> list[Any] | None:
    """Return arguments whose handles of one whole number are that number; None where there is none."""
    found: list[Any] = []
    changed = False
    for one in args:
        if type(one) is recorder.Handle and one.dtype_code == 2 and not one.type_shape:
            found.append(int(one))
            changed = True
        elif type(one) is tuple:
            inner = with_numbers(one)
            changed |= inner is not None
            found.append(one if inner is None else tuple(inner))
        else:
            found.append(one)
    return found if changed else None


def on_miss(key: Any, site: recorder.Site, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return what a region gives, in a call of a program or outside of one."""
    session = current_session()
    return function(*args) if session is None else session.missed(key, site, function, args)


def note_stored(value: Any, name: str) -> Any:
    """Note that an instance sets an attribute that it should have for itself; return the object."""
    run = recorder.current()
    if run is not None and run.scheduler is not None:
        run.scheduler.keep(value, name)
    return value


def class_of(unit: SourceUnit, name: str) -> Any:
    """Return a class of a named tuple by its name."""
    module, _, qualname = name.partition(".")
    for known in [one for key, one in sys.modules.items() if key.rpartition(".")[2] == module]:
        found: Any = known
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
    raise UndescribedError(f"no class {name}")


class Rewritten:
    """The functions of a program, whose regions record.

    Parameters
    ----------
    units : dict of SourceUnit to UnitParts
    flags, spaces : dict
        By file, the flags of its code, and its global variables.
    """

    def __init__(
        self,
        units: dict[SourceUnit, UnitParts],
        flags: dict[str, int],
        spaces: dict[str, dict[str, Any]],
    ) -> None:
        from dietcode.runtime.recorded.fibers import call_all
        from dietcode.runtime.recorded.handles import is_instance

        changed = []
        self._units = list(units)
        for unit, parts in units.items():
            regions = parts.regions
            functions = [region_function(unit, one, flags[unit.file], spaces[unit.file]) for one in regions]
            sites = [
                SITES.of(unit, one, function, on_miss)
                for one, function in zip(regions, functions, strict=True)
            ]
            calls: list[Any] = [one.call for one in sites]
            calls += [call_all, note_stored, is_instance]
            changed.append((unit, rewritten(unit, parts), calls))
        self._replacement = Replacement(changed, flags, spaces)

    def install(self) -> None:
        """Give the functions their code, unless they have it: another program may share some of them."""
        keys = [(one.file, one.qualname) for one in self._units]
        if all(_active.get(key) is self for key in keys):
            return
        with _install_lock:
            self._replacement.install()
            _active.update(dict.fromkeys(keys, self))


def eager_lines(regions: Sequence[RecordedRegion]) -> Counter[tuple[str, str]]:
    """Return how often regions ran eagerly, by line and reason."""
    found: Counter[tuple[str, str]] = Counter()
    for one in regions:
        for reason, count in one.eager.items():
            found[one.where, reason] += count
    return found
