"""What ``recorder/*.c`` makes: block calls that Python's own code notes, and handles of their results."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

class LimitError(MemoryError):
    """A run needs more than ``("bytes", max_bytes)``, or more rows than allowed of ``("rows", type)``."""

class Machine:
    """Blocks of a program.

    Parameters
    ----------
    description, program : array of int64
        As `dietcode.runtime.programs.machine` makes them, without functions. Both are trusted.
    shapes : tuple
        Of each type; `Handle.type_shape` gives them.
    kept : object
        Owns the memory to which the description refers.
    """

    def __new__(
        cls, description: array[int], program: array[int], shapes: tuple[Any, ...], kept: object = None
    ) -> Machine: ...
    @property
    def shapes(self) -> tuple[Any, ...]: ...
    @property
    def kept(self) -> Any: ...

class Run:
    """What one call after another notes in, and runs.

    Attributes
    ----------
    compute : callable or None
        Runs a block in place of the program: ``compute(block, depth, count, operands, results)``. An operand
        is the addresses of a table and of the positions of its rows, or 0 and the address of ids; a result is
        an address. The phase of a depth is in its bits from the 24th on.
    observe : callable or None
        Takes a list of ``(block, depth, operands, first result)`` of the nodes that are about to run.
    failure : BaseException or None
        The exception that ended the run; every use of it raises this again until the next `begin`.
    scheduler : object
        Runs the instances that note in it, or None.
    is_traced : bool
        Whether runs of blocks are measured, from the next `begin` on.
    """

    compute: Callable[..., object] | None
    observe: Callable[[list[tuple[int, int, tuple[int, ...], int]]], object] | None
    is_traced: bool
    scheduler: Any

    def __new__(cls, machine: Machine, max_bytes: int) -> Run: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def failure(self) -> BaseException | None: ...
    @property
    def num_pending(self) -> int: ...
    @property
    def traced(self) -> list[tuple[int, int, int, int]]:
        """Depth, block, rows and nanoseconds of each run of a block."""
    @property
    def flush_nsecs(self) -> int:
        """Nanoseconds of all flushes since it began, with those of blocks."""

    @property
    def times(self) -> tuple[int, int, int, int]:
        """Of a traced run: nanoseconds of the instances' own code, of all until they ended, and of flushes
        until then; and how often an instance waited."""

    def begin(self) -> None:
        """Become the current run of this thread, with nothing noted."""

    def end(self) -> None:
        """Restore the previous run of the thread; handles without a tensor lose their values."""

    def flush(self) -> None:
        """Run what is noted by phase, depth and block."""

    def gather(self, handles: list[Handle], address: int, /) -> None:
        """Copy the rows of computed handles of one type to an address, one after the other.

        Raises
        ------
        ValueError
            A handle has another type than the first, or another run.
        """

    def settle(
        self,
        results: list[Any],
        make: Callable[[Run, list[Handle]], Sequence[Any]],
        describe: Callable[[type], tuple[int, bool, tuple[str, ...]]],
        /,
    ) -> None:
        """Make tensors of all handles that somebody has, and put them in their places in results.

        Parameters
        ----------
        results : list
            What is in it is changed in place; tuples and the like are made anew.
        make : callable
            Gives the tensors of computed handles of one type.
        describe : callable
            ``describe(cls) -> (kind, whether it has a __dict__, names of its slots)``.
        """

    def live(self) -> list[Handle]:
        """Return all handles that somebody has."""

class Group:
    """Calls that do not depend on each other; iterated, it gives its owner those that nobody has begun."""

    def __iter__(self) -> Group: ...
    def __next__(self) -> Any: ...
    def fail(self, error: BaseException, /) -> object:
        """Keep the error of the owner's last call, or raise it where it ends the run; return None."""

    def put(self, number: int, result: object, error: BaseException | None = None, /) -> None:
        """Set the result of a call that `Fibers.take` gave."""

    def finish(self, results: list[Any], /) -> Any:
        """Return all results in order, given the owner's own, when others are done; raise the first error."""

class Fibers:
    """What waits in a run, and what may run meanwhile.

    Attributes
    ----------
    failure : BaseException or None
        Ends all of them.
    kept : dict or None
        What each has for itself. Then, or in other modes of PyTorch, the subclass's `leave_apart` switches.
    is_in_order : bool
        Whether waiting computes at once.
    is_plain : bool
        Whether no groups are made.
    """

    failure: BaseException | None
    kept: dict[Any, Any] | None
    is_in_order: bool
    is_plain: bool

    def __new__(cls, run: Run, *args: Any, **named: Any) -> Self: ...
    @property
    def run(self) -> Run: ...
    def begin(
        self, function: Callable[..., Any], instances: tuple[Any, ...], idle: list[Any], starter: object, /
    ) -> Group:
        """Return the group of the instances, whose errors are among its results.

        Parameters
        ----------
        function : callable
        instances : tuple of tuple
        idle : list of greenlet
            Each may be switched to with this object, when there is a call to take.
        starter : greenlet
            Likewise, where no other is idle.
        """

    def take(self) -> tuple[Group, int, Callable[..., Any], tuple[Any, ...]] | None:
        """Return the next call that nobody has begun: its group, number, function and arguments."""

    def next(self) -> Any:
        """Return the greenlet that goes on where all calls have begun, or None."""

class Handle:
    """A result of a block call: noted, computed, or made into a tensor."""

    tensor: Any
    @property
    def run(self) -> Run | None:
        """Its run; None when that is over."""

    @property
    def number(self) -> int: ...
    @property
    def type_number(self) -> int: ...
    @property
    def dtype_code(self) -> int:
        """0 for float32, 1 for bool, 2 for int64, 3 for int32; its row is of float32 in any case."""

    @property
    def type_shape(self) -> Any: ...
    @property
    def computed(self) -> bool: ...
    def item(self) -> bool | int | float:
        """Wait for its number; `__bool__`, `__float__`, `__int__` and `__index__` do as well."""

    def tolist(self) -> Any:
        """Wait for its numbers: nested lists."""

    def __float__(self) -> float: ...
    def __index__(self) -> int: ...
    def __int__(self) -> int: ...
    @property
    def row_address(self) -> int:
        """Where its row begins, until the next flush."""

class Site:
    """A place of the source that calls blocks.

    Parameters
    ----------
    on_miss : callable
        ``on_miss(site, arguments)`` gives the result of a call that matches no variant.
    """

    def __new__(cls, on_miss: Callable[[Site, tuple[Any, ...]], Any]) -> Site: ...
    @property
    def call(self) -> Callable[..., Any]: ...
    def add(self, machine: Machine, words: array[int], objects: tuple[Any, ...], /) -> None:
        """Add a variant; ``recorder/variants.c`` says what its words are.

        Raises
        ------
        ValueError
            A word is none that is allowed there.
        """

    def clear(self) -> None:
        """Forget all variants."""

def value(handle: Handle, /) -> bool | int | float:
    """Return the number that a computed handle of one element is."""

def pretend(cls: type, num_bytes: int, make: Callable[[Handle], object], truths: tuple[Any, Any], /) -> None:
    """Let `isinstance` take every handle for an object of a class, also where C code asks.

    Parameters
    ----------
    cls : type
        That of PyTorch's tensors.
    num_bytes : int
        The size of the C structure that a tensor begins with.
    make : callable
        Sets `Handle.tensor`; called when the class of a handle is asked for and it has no tensor.
    truths : tuple
        Tensors of False and True, whose copies are the answers of comparisons.
    """

def current() -> Run | None:
    """Return this thread's current run."""

def call_at_bottom(function: Callable[..., Any], /, *args: Any) -> Any:
    """Return what a function returns, as the first of a greenlet: backtraces of the stack of C end there."""

def wait(handle: Handle, /) -> None:
    """Return when a handle is computed; other instances run until then."""

def watch(functions: tuple[Callable[[], object], ...], /) -> None:
    """Set the functions that say how a thread stands: four modes of PyTorch, and asyncio's running loop."""

def begin_calls(calls: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...], /) -> Group | None:
    """Return a group of calls in the current run; None where they are to be made one after the other."""

def begin_map(function: Callable[[Any], Any], items: Iterable[Any], /) -> Group | None:
    """Return a group of calls of a function for each item, as `begin_calls` does."""
