"""All steps of a model for one binding of its dimensions: memory assigned, views made, arguments in place.

What no call changes is done once: views of the model's own memory, and the arguments of kernels. What depends
on the tensors of a call, which are its inputs and outputs, is done at each.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    TensorRead,
    evaluated,
)
from dietcode.runtime.models.flow import (
    BranchStep,
    CarriedSlots,
    LoopStep,
    Positions,
    branch_action,
    loop_action,
)
from dietcode.runtime.models.placed import PlacedPart, placed_parts
from dietcode.runtime.models.repeated import Repeated, RepeatedCalls, repeated_action
from dietcode.runtime.models.sizes import Continuations, bounded
from dietcode.runtime.models.steps import host_action
from dietcode.runtime.models.storages import StorageMemory, storage_offsets

Array: TypeAlias = NDArray[Any]
Slots: TypeAlias = list[Any]
Action: TypeAlias = Callable[[Slots], Any]


@dataclass(frozen=True)
class Kernels:
    """What a model calls and what it holds: its libraries, and the values of the load.

    Attributes
    ----------
    run : dict of str to callable
        The code's function of each library: tensors, outputs, values of shape variables.
    orders : dict of str to (list of str, list of str)
        The tensors and the shape variables of each library, in the order of its arguments.
    packed : dict of (str, str, str) to object
        Constants as the code takes them, by library, tensor and value.
    constants : dict of str to array
    """

    run: Mapping[str, Callable[..., Any]]
    orders: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    packed: Mapping[tuple[str, str, str], Any]
    constants: Mapping[str, Array]


class Prepared:
    """A model for one binding of its dimensions.

    Parameters
    ----------
    executable : Executable
    kernels : Kernels
    binding : mapping of str to int
        Of the dimensions.
    memory : StorageMemory
        Large enough.
    """

    def __init__(
        self, executable: Executable, kernels: Kernels, binding: Mapping[str, int], memory: StorageMemory
    ) -> None:
        self._executable, self._kernels, self._binding = executable, kernels, binding
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._memory, self._offsets = memory, storage_offsets(executable, binding)[0]
        self._fixed: dict[str, Array] = dict(kernels.constants)
        self._slots: dict[str, int] = {name: number for number, name in enumerate(executable.inputs)}
        self._new: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        self._parts: list[tuple[int, int, PlacedPart]] = []  # slots of values that lie in those of others
        self._actions: list[Action] = []
        self._sources: list[Step] = []  # of each action
        self._arrays: set[int] = set()  # slots of outputs that steps before these have
        self._memories: dict[str, Array] = {}  # of states of loops, which have slots
        self._reserved: frozenset[str] = frozenset()  # loops by their first result
        self._tails: Continuations[Prepared] = Continuations()
        self._answer = -1
        if executable.sizes:
            self._answer = self._slots[""] = len(self._slots)
        self._allocate()
        self._add_steps(executable.steps, ends_call=True)
        self._num_slots = len(self._slots)

    def _allocate(self) -> None:
        """Give every value memory whose shape is known, and that has none yet."""
        executable = self._executable
        for name, number in executable.storage_of.items():
            type_ = executable.values[name]
            if name not in self._fixed and name not in self._slots and self._is_bound(type_):
                self._fixed[name] = self._memory.view(self._offsets[number], type_, self._shape(type_.shape))
        for step in executable.all_steps:
            if isinstance(step, LoopStep):
                self._reserve(step)
        self._place()
        self._allocate_outputs()

    def _place(self) -> None:
        """Give the parts of concatenations their places in the whole."""
        for whole, parts in placed_parts(self._executable, self._shape):
            if whole not in self._fixed and whole not in self._slots:
                self._new_slot(whole)
            for part in parts:
                if whole in self._fixed:
                    self._fixed.setdefault(part.name, part.view(self._fixed[whole]))
                elif part.name not in self._slots:
                    number = self._slots[part.name] = len(self._slots)
                    self._parts.append((number, self._slots[whole], part))

    def _is_bound(self, type_: TensorType) -> bool:
        unbound = self._executable.sizes.keys() - self._binding.keys()
        return not unbound or all(unbound.isdisjoint(extent.variables) for extent in type_.shape)

    def _finish(self) -> None:
        """Note where the outputs of the call are, after its last step."""
        executable = self._executable
        self._given = [self._fixed.get(name) for name in executable.outputs]
        self._from_slot = [self._slots.get(name, -1) for name in executable.outputs]
        # New arrays of the call; the rest is shared with others.
        own = self._arrays | {number for number, _, _ in self._new}
        self._copies = [number not in own for number in self._from_slot]

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the outputs, new arrays; `inputs` are contiguous and of the shapes of the binding."""
        slots = self._begun(inputs)
        for action in self._actions:
            action(slots)
        last = slots[self._answer] if self._answer >= 0 else self
        return last._outputs(slots)

    def step_secs(self, inputs: Sequence[Array]) -> list[tuple[Step, float]]:
        """Run the steps as a call does, and return the seconds of each that does something.

        Those of a step that has others in it, or that tells a size, are theirs too.
        """
        slots, found = self._begun(inputs), []
        for step, action in zip(self._sources, self._actions, strict=True):
            begin = time.perf_counter()
            action(slots)
            found.append((step, time.perf_counter() - begin))
        return found

    def _begun(self, inputs: Sequence[Array]) -> Slots:
        slots: Slots = [*inputs, *[None] * (self._num_slots - len(inputs))]
        for number, shape, dtype in self._new:
            slots[number] = np.empty(shape, dtype)
        for number, whole, part in self._parts:
            slots[number] = part.view(slots[whole])
        if self._answer >= 0:
            slots[self._answer] = self  # or what the last size prepared
        return slots

    def _outputs(self, slots: Slots) -> list[Array]:
        return [
            np.array(slots[number] if number >= 0 else fixed, order="C", copy=True)
            if copies
            else slots[number]
            for number, fixed, copies in zip(self._from_slot, self._given, self._copies, strict=True)
        ]

    def _add_steps(self, steps: Sequence[Step], ends_call: bool = False) -> None:
        for number, step in enumerate(steps):
            sized = isinstance(step, HostStep) and "size" in step.attributes
            if isinstance(step, HostStep) and sized:
                self._add_sized(step, steps[number + 1 :], ends_call)
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
                self._sources += [step] * (len(self._actions) - len(self._sources))
            if sized:  # the rest is prepared when the size is known
                return
        if ends_call:
            self._finish()

    def _add_sized(self, step: HostStep, steps: Sequence[Step], ends_call: bool) -> None:
        """Add a step that tells a size; what follows is prepared when this is known, once for each value.

        Parameters
        ----------
        step : HostStep
        steps : sequence of step
            Those that follow it.
        ends_call : bool
            Whether the outputs of the model are there after them.
        """
        size: Extent = step.attributes["size"]
        unbound = sorted(size.variables - self._binding.keys())
        operands = [self._operand(one) for one in step.operands]
        compute, sizes = HOST[step.operator], self._executable.sizes
        ranges = {**self._executable.ranges, **{n: (v, v) for n, v in self._binding.items()}}
        low, high = (size if not unbound else sizes[unbound[0]]).bounds(ranges)
        if unbound:
            own = self._executable.ranges[unbound[0]]
            low, high = own[0], min(own[1], high)
        check = bounded(str(size), low, high, step.source)

        def act(slots: Slots) -> None:
            (result,) = compute([one(slots) for one in operands], {})
            count = int(result) if step.operator == "size" else len(result)
            check(count)
            binding = {**self._binding, **({unbound[0]: count} if unbound else {})}
            key = (id(step), *binding.values())
            tail = self._tails.get(key, lambda: self._tail(binding, step, steps, ends_call))
            slots.extend([None] * (tail._num_slots - len(slots)))
            if ends_call:
                slots[self._answer] = tail
            for number, shape, dtype in tail._new:
                slots[number] = np.empty(shape, dtype)
            np.copyto(tail._operand(step.results[0])(slots), result)
            for action in tail._actions:
                action(slots)

        self._actions.append(act)

    def _tail(
        self, binding: Mapping[str, int], step: HostStep, steps: Sequence[Step], ends_call: bool
    ) -> Prepared:
        """Return the steps that follow one which told a size."""
        tail = copy.copy(self)
        tail._binding, tail._shapes = binding, {}
        tail._actions, tail._sources, tail._new, tail._parts = [], [], [], []
        tail._fixed, tail._slots, tail._memories = dict(self._fixed), dict(self._slots), dict(self._memories)
        tail._arrays = self._arrays | {number for number, _, _ in self._new}
        tail._allocate()
        tail._add_steps(steps, ends_call)
        tail._num_slots = len(tail._slots)
        return tail

    def _within(self, steps: Sequence[Step]) -> list[Action]:
        """Return the actions of steps within a step."""
        around, self._actions = self._actions, []
        self._add_steps(steps)
        found, self._actions = self._actions, around
        return found

    def _reserve(self, step: LoopStep) -> None:
        """Give what changes from round to round slots instead of memory that stays."""
        if step.results[0] in self._reserved or not all(
            self._is_bound(self._executable.values[one]) for one in step.states
        ):
            return
        self._reserved = self._reserved | {step.results[0]}
        for name in step.states:
            self._memories[name] = self._fixed.pop(name)
        for name in (*step.states, *(name for _, name in step.each), *(name for name, _ in step.stacked)):
            self._slots[name] = len(self._slots)

    def _add_branch(self, step: BranchStep) -> None:
        sides = self._within(step.then), self._within(step.otherwise)
        self._actions.append(branch_action(self._operand(step.predicate), *sides))

    def _add_loop(self, step: LoopStep) -> None:
        condition = self._within(step.condition)
        holds = self._operand(step.predicate) if step.predicate else None
        rounds = itertools.repeat(0) if step.count is None else range(step.count.evaluate(self._binding))
        carried = [
            CarriedSlots(
                self._operand(one.first),
                self._operand(result),
                self._slots[one.state],
                self._slots[one.next],
                (self._memories[one.state], self._memories[one.next]),
            )
            for one, result in zip(step.carried, step.results, strict=False)
        ]
        positions = [Positions(self._operand(of), self._slots[name]) for of, name in step.each]
        positions += [Positions(self._operand(of), self._slots[name]) for name, of in step.stacked]
        body = self._within(step.body)
        self._actions.append(loop_action(condition, holds, rounds, body, carried, positions))

    def _shape(self, shape: tuple[Extent, ...]) -> tuple[int, ...]:
        """Return a shape of the executable as numbers; by identity, since equal ones are one object."""
        found = self._shapes.get(id(shape))
        if found is None:
            found = tuple(extent.evaluate(self._binding) for extent in shape)
            self._shapes[id(shape)] = found
        return found

    def _allocate_outputs(self) -> None:
        """Give each value that a step writes, and that has no storage, a slot: it goes to the caller."""
        executable = self._executable
        for step in executable.all_steps:
            if isinstance(step, HostStep) and step.is_view:
                continue
            names = [one.value for one in step.results] if isinstance(step, KernelStep) else step.results
            for name in names:
                is_known = name in self._fixed or name in self._slots
                if not is_known and self._is_bound(executable.values[name]):
                    self._new_slot(name)

    def _new_slot(self, name: str) -> None:
        """Have each call allocate a value."""
        type_ = self._executable.values[name]
        number = self._slots[name] = len(self._slots)
        self._new.append((number, self._shape(type_.shape), np.dtype(type_.dtype)))

    def _add_view(self, step: HostStep) -> None:
        attributes = evaluated_attributes(step, self._binding)
        (operand,) = (one for one in step.operands if isinstance(one, str))
        compute = HOST[step.operator]
        if operand in self._fixed:
            self._fixed[step.results[0]] = compute([self._fixed[operand]], attributes)[0]
            return
        source = self._slots[operand]
        target = self._slots[step.results[0]] = len(self._slots)

        def act(slots: Slots) -> None:
            (slots[target],) = compute([slots[source]], attributes)

        self._actions.append(act)

    def _add_kernel(self, step: KernelStep) -> None:
        names, variables = self._kernels.orders[step.digest]
        run = self._kernels.run[step.digest]
        arguments: list[Any] = []
        changing: list[tuple[int, int, tuple[int, ...]]] = []
        reads = [step.arguments[name] for name in names]
        for name, read in zip((*names, *[""] * len(step.results)), (*reads, *step.results), strict=True):
            key = (step.digest, name, read.value)
            if key in self._kernels.packed:
                arguments.append(self._kernels.packed[key])
            elif read.value in self._fixed:
                arguments.append(self._reshaped(self._fixed[read.value], read))
            else:
                shape = self._shape(read.shape)
                changing.append((len(arguments), self._slots[read.value], shape))
                arguments.append(None)
        values = [step.variables[name].evaluate(self._binding) for name in variables]
        if self._has_nothing(step, variables, values):
            return
        arguments += values
        if not changing:
            fixed = tuple(arguments)

            def act(slots: Slots) -> None:
                run(*fixed)
        else:

            def act(slots: Slots) -> None:
                given = arguments.copy()  # the caller's tensors are not kept beyond the call
                for position, number, shape in changing:
                    given[position] = slots[number].reshape(shape)
                run(*given)

        self._actions.append(act)

    def _has_nothing(self, step: KernelStep, variables: Sequence[str], values: Sequence[int]) -> bool:
        """Whether a kernel has no element to compute; kernels do not take extents of 0 otherwise."""
        if min(values, default=1) > 0:
            return False
        sizes = [math.prod(self._shape(one.shape)) for one in step.results]
        if any(sizes):
            zero = next(name for name, value in zip(variables, values, strict=True) if value < 1)
            raise ShapeError(f"{step.variables[zero]} is 0 in these shapes; allowed: at least 1")
        return True

    def _add_repeated(self, step: KernelStep, repeat: Repeat) -> None:
        """Call a kernel for each position, the states of one call being arguments of the next."""
        names, variables = self._kernels.orders[step.digest]
        run, count = self._kernels.run[step.digest], repeat.count.evaluate(self._binding)
        order = range(count)[::-1] if repeat.reverse else range(count)
        values = [step.variables[name].evaluate(self._binding) for name in variables]
        results = [self._operand(one.value) for one in step.results]
        inputs: list[Repeated] = []
        for name in names:
            read = step.arguments[name]
            key = (step.digest, name, read.value)
            if key in self._kernels.packed:
                inputs.append(Repeated(name, self._kernels.packed[key], None))
            else:
                inputs.append(Repeated(name, self._operand(read.value), self._shape(read.shape)))

        values_of = (*(one.value for one in step.results), *(one.value for one in step.arguments.values()))
        calls = RepeatedCalls(repeat, order, inputs, results, values)
        is_fixed = not any(value in self._slots for value in values_of)
        self._actions.append(repeated_action(run, calls, count, is_fixed))

    def _reshaped(self, array: Array, read: TensorRead) -> Any:
        shape = self._shape(read.shape)
        if array.shape == shape and array.flags.c_contiguous:
            return array
        result = array.reshape(shape)
        if not array.flags.c_contiguous and result.size and not np.shares_memory(result, array):
            raise ShapeError(f"{read.value}: is not contiguous")
        return result

    def _add_host(self, step: HostStep) -> None:
        if step.placed:
            return
        if step.operator == "assert" and not step.operands:
            self._add_check(step)
            return
        attributes = evaluated_attributes(step, self._binding)
        operands = [self._operand(one) for one in step.operands]
        targets = [self._operand(name) for name in step.results]
        self._actions.append(host_action(step.operator, attributes, operands, targets))

    def _add_check(self, step: HostStep) -> None:
        """Check extents now, once; a call gets the error where the step is, which it may not come to."""
        attributes = evaluated_attributes(step, self._binding)
        try:
            HOST[step.operator]([], attributes)
        except ShapeError as error:
            names = sorted(step.attributes["value"].variables)
            known = ", ".join(f"{name} is {self._binding[name]}" for name in names)
            message = f"{error} ({known})"

            def act(slots: Slots) -> None:
                raise ShapeError(message)

            self._actions.append(act)

    def _operand(self, operand: Any) -> Action:
        if not isinstance(operand, str):
            return lambda slots: operand
        if operand in self._fixed:
            array = self._fixed[operand]
            return lambda slots: array
        number = self._slots[operand]
        return lambda slots: slots[number]


def evaluated_attributes(step: HostStep, binding: Mapping[str, int]) -> dict[str, Any]:
    """Return the attributes of a step with extents as numbers."""
    return {key: evaluated(value, binding) for key, value in step.attributes.items()}
