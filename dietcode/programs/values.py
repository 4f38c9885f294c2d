"""What expressions become: registers, results of tensor code that has not run yet, and what is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dietcode.programs.kinds import Kind


@dataclass(frozen=True)
class KnownValue:
    """A number, text or None that stands in the text; or a module, function or weight.

    Attributes
    ----------
    value : object
    name : str
    is_tensor : bool
        Whether tensor code has the number as a tensor.
    """

    value: Any
    name: str = ""
    is_tensor: bool = field(default=False, compare=False)

    def for_torch(self) -> Any:
        """Return the value as tensor code takes it."""
        import torch

        return torch.tensor(self.value) if self.is_tensor else self.value


@dataclass(frozen=True)
class Register:
    """A register of a function.

    Attributes
    ----------
    number : int
    kind : Kind
        Of what it holds where it is read.
    is_made : bool
        Whether a block computed its tensor; otherwise it came with the instance.
    """

    number: int
    kind: Kind = None
    is_made: bool = True


@dataclass(frozen=True)
class Several:
    """A tuple whose items are known one by one."""

    items: tuple[Value, ...]
    is_list: bool = False


@dataclass(eq=False)
class Pending:
    """A tensor that an operation of a block computes.

    Attributes
    ----------
    operation : Operation
    path : tuple of int
        Where it is in what the operation returns.
    kind : Kind
    register : int or None
        Where the block has written it, once it has run.
    number : int or None
        Of a whole number that tensor code computes: where it is as plain Python's.
    """

    operation: Operation
    path: tuple[int, ...]
    kind: Kind
    register: int | None = None
    number: int | None = None


Value: TypeAlias = "KnownValue | Register | Several | Pending"


@dataclass(eq=False)
class Operation:
    """One operation of tensor code.

    Attributes
    ----------
    function : callable
        Of tensors, as PyTorch has it.
    args, kwargs : sequence and mapping of Argument
    where : str
        File and line.
    name : str
        Of the function, as the text has it.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    where: str
    name: str = ""
    results: list[Pending] = field(default_factory=list)


@dataclass(frozen=True)
class Indices:
    """A slice among the arguments of tensor code."""

    ends: tuple[Any, ...]


def leaves_of(argument: Any) -> Iterator[Any]:
    """Return registers, pending tensors and known values of an argument, in order."""
    if isinstance(argument, Several):
        for one in argument.items:
            yield from leaves_of(one)
    elif isinstance(argument, Indices):
        for one in argument.ends:
            yield from leaves_of(one)
    else:
        yield argument


def resolved(argument: Any, find: Callable[[Any], Any]) -> Any:
    """Return an argument as PyTorch takes it; `find` says what a leaf is."""
    if isinstance(argument, Several):
        items = [resolved(one, find) for one in argument.items]
        return items if argument.is_list else tuple(items)
    if isinstance(argument, Indices):
        return slice(*(resolved(one, find) for one in argument.ends))
    return find(argument)


@dataclass(eq=False)
class OperationGroup:
    """A run of tensor code that becomes one block.

    Attributes
    ----------
    operations : list of Operation
    operands : list of Register
    results : list of Pending
        In the order of the block's results.
    """

    operations: list[Operation] = field(default_factory=list)
    operands: list[Register] = field(default_factory=list)
    results: list[Pending] = field(default_factory=list)

    @property
    def where(self) -> str:
        """File and lines."""
        first, last = self.operations[0].where, self.operations[-1].where
        return first if first == last else f"{first} to {last.rpartition(':')[2]}"

    def without_unused(self) -> None:
        """Drop operations that no result needs, and operands that nothing reads."""
        needed = {id(one.operation) for one in self.results}
        kept: list[Operation] = []
        for one in reversed(self.operations):
            if id(one) in needed:
                kept.append(one)
                read = [leaf for argument in arguments_of(one) for leaf in leaves_of(argument)]
                needed |= {id(leaf.operation) for leaf in read if isinstance(leaf, Pending)}
        self.operations = kept[::-1]
        numbers = {
            leaf.number
            for one in self.operations
            for argument in arguments_of(one)
            for leaf in leaves_of(argument)
            if isinstance(leaf, Register)
        }
        self.operands = [one for one in self.operands if one.number in numbers]


def arguments_of(operation: Operation) -> list[Any]:
    """Return all arguments of an operation."""
    return [*operation.args, *operation.kwargs.values()]
