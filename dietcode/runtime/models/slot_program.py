"""A model as actions on slots: decided once, for all sizes.

Values have slots, and so have the arguments of kernels, attributes and whatever else follows from sizes.
Those that stay from call to call are found by the `SlotTable` for a binding of the dimensions. What depends
on the tensors of a call, which are its inputs and outputs, is done by actions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.errors import ShapeError
from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.host_operators import HOST
from dietcode.runtime.models.executable import (
    Executable,
    HostStep,
    KernelStep,
    Repeat,
    Step,
)
from dietcode.runtime.models.flow import (
    BranchStep,
    CarriedSlots,
    LoopStep,
    Positions,
    branch_action,
    loop_action,
)
from dietcode.runtime.models.kernels import Array, Kernels
from dietcode.runtime.models.repeated import Repeated, RepeatedCalls, repeated_action
from dietcode.runtime.models.slots import Action, Slots, tuple_of
from dietcode.runtime.models.steps import host_action, with_reader
from dietcode.runtime.models.value_slots import ValueSlots


@dataclass(frozen=True)
class SizedStep:
    """A step that tells a size, and those that follow it.

    Attributes
    ----------
    step : HostStep
    steps : sequence of step
    unbound : str
        The dimension that it tells; empty where its size follows from those that are known.
    ends_call : bool
        Whether the outputs of the model are there after them.
    """

    step: HostStep
    steps: Sequence[Step]
    unbound: str
    ends_call: bool


class SlotProgram:
    """The actions of a model, or of what follows a step in it that tells a size.

    Parameters
    ----------
    executable : Executable
    kernels : Kernels

    Attributes
    ----------
    values : ValueSlots
    table : SlotTable
        Of all slots.
    actions : list of action
        One after the other, on the slots of a call.
    sources : list of step
        Of each action.
    here : int
        The slot of the `Prepared` that a call runs.
    answer : int
        The slot of the program whose outputs are those of the call; -1 where it is this one.
    """

    def __init__(self, executable: Executable, kernels: Kernels) -> None:
        self._executable, self._kernels = executable, kernels
        self.values = ValueSlots(executable, kernels.constants)
        self.answer = self.values.table.new() if executable.sizes else -1
        self._arrays: set[int] = set()  # slots of outputs that steps before these have
        self._add(executable.steps, ends_call=True)

    def _add(self, steps: Sequence[Step], ends_call: bool) -> None:
        self.actions: list[Action] = []
        self.sources: list[Step] = []
        self._copied: list[tuple[int, bool]] = []  # slots of outputs, and whether a call copies them
        self._calls: list[tuple[int, KernelStep]] = []
        self._variables: set[int] = set()  # slots of the values of shape variables
        self.table = self.values.table
        self.here = self.table.new()
        self._add_steps(steps, ends_call)

    def after(self, sized: SizedStep) -> SlotProgram:
        """Return the program of what follows a step of this one that tells a size."""
        tail: SlotProgram = object.__new__(SlotProgram)
        tail._executable, tail._kernels, tail.answer = self._executable, self._kernels, self.answer
        tail.values = self.values.after(sized.unbound)
        tail._arrays = self._arrays | {number for number, _, _ in self.values.new}
        tail._add(sized.steps, sized.ends_call)
        return tail

    def skip_empty(self, slots: Slots) -> None:
        """Take the arguments from kernels that have no element to compute: they take no extents of 0.

        A product that sums over nothing gets one element of zeros.

        Raises
        ------
        ShapeError
            A kernel would have to compute something from nothing.
        """
        if min((slots[number] for number in self._variables), default=1) > 0:
            return
        for number, step in self._calls:
            _, names = self._kernels.orders[step.digest]
            values = {name: slots[self.table.extent(step.variables[name])] for name in names}
            if min(values.values(), default=1) < 1:
                is_read = any(math.prod(slots[self.table.shape(one.shape)]) for one in step.results)
                if is_read and not step.is_product:
                    zero = next(name for name, value in values.items() if value < 1)
                    raise ShapeError(f"{step.variables[zero]} is 0 in these shapes; allowed: at least 1")
                slots[number] = tuple(map(_of_one, slots[number])) if is_read else None

    def outputs(self, slots: Slots) -> list[Array]:
        """Return the outputs of a call, which are the caller's own."""
        return [
            np.array(slots[number], order="C", copy=True) if copies else slots[number]
            for number, copies in self._copied
        ]

    def _finish(self) -> None:
        """Note where the outputs of the call are, after its last step."""
        # New arrays of the call; the rest is shared with others.
        own = self._arrays | {number for number, _, _ in self.values.new}
        numbers = [self.values.slots[name] for name in self._executable.outputs]
        self._copied = [(number, number not in own) for number in numbers]

    def _add_steps(self, steps: Sequence[Step], ends_call: bool = False) -> None:
        for number, step in enumerate(steps):
            sized = isinstance(step, HostStep) and "size" in step.attributes
            if isinstance(step, HostStep) and sized:
                unbound = sorted(step.attributes["size"].variables - self.values.bound)
                self._add_sized(SizedStep(step, steps[number + 1 :], "".join(unbound[:1]), ends_call))
            elif isinstance(step, KernelStep) and step.repeat is not None:
                self._add_repeated(step, step.repeat)
            elif isinstance(step, KernelStep):
                self._add_kernel(step)
            elif isinstance(step, BranchStep):
                self._add_branch(step)
            elif isinstance(step, LoopStep):
                self._add_loop(step)
            elif step.is_view:
                self._add_view(step)
            else:
                self._add_host(step)
            if ends_call:
                self.sources += [step] * (len(self.actions) - len(self.sources))
            if sized:  # the rest is another program
                return
        if ends_call:
            self._finish()

    def _add_sized(self, sized: SizedStep) -> None:
        """Add a step that tells a size; what follows is found when this is known, once for each value."""
        operands = [self._operand(one) for one in sized.step.operands]
        compute, here, tails = HOST[sized.step.operator], self.here, list[SlotProgram]()

        def act(slots: Slots) -> None:
            (result,) = compute([slots[one] for one in operands], {})
            count = int(result) if sized.step.operator == "size" else len(result)
            if not tails:
                tails.append(self.after(sized))
            slots[here].run_tail(sized, tails[0], count, result, slots)

        self.actions.append(act)

    def _within(self, steps: Sequence[Step]) -> list[Action]:
        """Return the actions of steps within a step."""
        around, self.actions = self.actions, []
        self._add_steps(steps)
        found, self.actions = self.actions, around
        return found

    def _add_branch(self, step: BranchStep) -> None:
        sides = self._within(step.then), self._within(step.otherwise)
        self.actions.append(branch_action(self._found(step.predicate), *sides))

    def _add_loop(self, step: LoopStep) -> None:
        condition = self._within(step.condition)
        holds = self._found(step.predicate) if step.predicate else None
        count = None if step.count is None else self.table.extent(step.count)
        carried = [
            CarriedSlots(
                self._found(one.first),
                self._found(result),
                self.values.slots[one.state],
                self.values.slots[one.next],
                (self.values.memories[one.state], self.values.memories[one.next]),
            )
            for one, result in zip(step.carried, step.results, strict=False)
        ]
        positions = [Positions(self._found(of), self.values.slots[name]) for of, name in step.each]
        positions += [Positions(self._found(of), self.values.slots[name]) for name, of in step.stacked]
        body = self._within(step.body)
        self.actions.append(loop_action(condition, holds, count, body, carried, positions))

    def _add_view(self, step: HostStep) -> None:
        (operand,) = (one for one in step.operands if isinstance(one, str))
        (result,) = step.results
        source, compute = self.values.slots[operand], HOST[step.operator]
        shape = self._executable.values[result].shape
        if (
            step.operator == "reshape"
            and step.attributes["shape"] == shape
            and self.values.holds(operand, shape)
        ):
            storage, type_ = self.values.storages[operand]
            self.values.storages[result] = storage, TensorType(type_.dtype, shape)
            self.values.slots[result] = self.table.view(storage, type_.dtype, shape)
            self.values.fixed.add(result)
            return
        attributes = self.table.attributes(step.attributes)
        if operand in self.values.fixed:
            self.values.slots[result] = self.table.made(
                lambda slots: compute([slots[source]], slots[attributes])[0]
            )
            self.values.fixed.add(result)
            return
        target = self.values.slots[result] = self.table.new()

        def act(slots: Slots) -> None:
            (slots[target],) = compute([slots[source]], slots[attributes])

        self.actions.append(act)

    def _add_kernel(self, step: KernelStep) -> None:
        names, variables = self._kernels.orders[step.digest]
        run, numbers = self._kernels.run[step.digest], list[int]()
        changing: list[tuple[int, int, int]] = []
        reads = [step.arguments[name] for name in names]
        for name, read in zip((*names, *[""] * len(step.results)), (*reads, *step.results), strict=True):
            key = (step.digest, name, read.value)
            if key in self._kernels.packed:
                numbers.append(self.table.same(key, self._kernels.packed[key]))
            elif read.value in self.values.fixed:
                numbers.append(self.values.read(read))
            else:
                changing.append((len(numbers), self.values.slots[read.value], self.table.shape(read.shape)))
                numbers.append(self.here)  # anything: it is replaced
        values = [self.table.extent(step.variables[name]) for name in variables]
        self._variables.update(values)
        arguments = self.table.made(tuple_of([*numbers, *values]))
        self._calls.append((arguments, step))
        for one in step.results:
            self.table.shape(one.shape)  # asked for where there is nothing to compute

        def act(slots: Slots) -> None:
            given = slots[arguments]
            if given:
                run(*given)

        def act_on_call(slots: Slots) -> None:
            if slots[arguments]:
                given = [*slots[arguments]]  # the caller's tensors are not kept beyond the call
                for position, number, shape in changing:
                    own = slots[number].reshape(slots[shape])
                    given[position] = own if own.size else _of_one(own)
                run(*given)

        self.actions.append(act_on_call if changing else act)

    def _add_repeated(self, step: KernelStep, repeat: Repeat) -> None:
        """Call a kernel for each position, the states of one call being arguments of the next."""
        names, variables = self._kernels.orders[step.digest]
        run, count = self._kernels.run[step.digest], self.table.extent(repeat.count)
        extents = tuple_of([self.table.extent(step.variables[name]) for name in variables])
        results = [self._found(one.value) for one in step.results]
        given: list[tuple[str, Any, int | None]] = []
        for name in names:
            read = step.arguments[name]
            packed = self._kernels.packed.get((step.digest, name, read.value))
            if packed is not None:
                given.append((name, packed, None))
            else:
                given.append((name, self._found(read.value), self.table.shape(read.shape)))
        values = {*(one.value for one in step.results), *(one.value for one in step.arguments.values())}
        is_fixed = all(value in self.values.fixed or value not in self.values.slots for value in values)

        def make(slots: Slots) -> Action:
            number = slots[count]
            inputs = [Repeated(n, own, None if shape is None else slots[shape]) for n, own, shape in given]
            order = range(number)[::-1] if repeat.reverse else range(number)
            calls = RepeatedCalls(repeat, order, inputs, results, extents(slots))
            return repeated_action(run, calls, number, is_fixed)

        made = self.table.made(make)
        self.actions.append(lambda slots: slots[made](slots))

    def _add_host(self, step: HostStep) -> None:
        if step.placed:
            return
        if step.operator == "assert" and not step.operands:
            self._add_check(step)
            return
        attributes = self.table.attributes(step.attributes)
        operands = [self._operand(one) for one in step.operands]
        targets = [self.values.slots[name] for name in step.results]
        copy = self._kernels.copy
        action = host_action(step.operator, attributes, operands, targets, copy)
        self.actions.append(with_reader(action, self._executable, step))

    def _add_check(self, step: HostStep) -> None:
        """Check extents once; a call gets the error where the step is, which it may not come to."""
        attributes = self.table.attributes(step.attributes)
        names = sorted(step.attributes["value"].variables)
        values = tuple_of([self.table.extent(Extent.of(name)) for name in names])

        def check(slots: Slots) -> str:
            try:
                HOST[step.operator]([], slots[attributes])
            except ShapeError as error:
                known = zip(names, values(slots), strict=True)
                return f"{error} ({', '.join(f'{name} is {value}' for name, value in known)})"
            return ""

        message = self.table.made(check)

        def act(slots: Slots) -> None:
            if slots[message]:
                raise ShapeError(slots[message])

        self.actions.append(act)

    def _operand(self, operand: Any) -> int:
        return self.values.slots[operand] if isinstance(operand, str) else self.table.new(operand)

    def _found(self, name: str) -> Action:
        number = self.values.slots[name]
        return lambda slots: slots[number]


def _of_one(argument: Any) -> Any:
    """Return an argument of a kernel with one element of zeros along axes without elements."""
    if isinstance(argument, int):
        return argument or 1
    if not isinstance(argument, np.ndarray) or argument.size:
        return argument
    return np.zeros([size or 1 for size in argument.shape], argument.dtype)
