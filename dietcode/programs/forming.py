"""A program as data: its control flow in the form of ``program.json``, and the graphs of its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import ModelError
from dietcode.graph.graph import Graph
from dietcode.programs.code import Code, Instruction
from dietcode.programs.early_exceptions import ThrowingCode, check_generators
from dietcode.programs.exception_tables import handlers_of, note_exceptions
from dietcode.programs.exporting import Type, WeightNames, export_group, result_type_of, signature_of, type_of
from dietcode.programs.generators import was_generator
from dietcode.programs.lowering import FunctionLowering
from dietcode.programs.optimisations import ALL, Optimisations
from dietcode.programs.recording import Recording
from dietcode.programs.registers import finished, read_before_written
from dietcode.programs.sites import Context, is_of_library
from dietcode.programs.values import OperationGroup
from dietcode.workload.text import clip


@dataclass(frozen=True)
class FormedBlock:
    """One block, before it is batched.

    Attributes
    ----------
    graph : Graph
        Of one instance; its inputs are its operands.
    operands, results : tuple of Type
    is_made : list of bool
        Of each operand, whether a block computed it in any sample; others come with the instance.
    group : OperationGroup
        One of those that it is, for PyTorch.
    """

    graph: Graph
    operands: tuple[Type, ...]
    results: tuple[Type, ...]
    is_made: list[bool]
    group: OperationGroup


@dataclass
class Formed:
    """A program as data.

    Attributes
    ----------
    form : dict
        ``records``, ``names``, ``constants``, ``tensors``, ``types``, ``functions``, ``entry``.
    blocks : list of FormedBlock
    weights : WeightNames
    """

    form: dict[str, Any]
    blocks: list[FormedBlock] = field(default_factory=list)
    weights: WeightNames = field(default_factory=WeightNames)


def form_program(recording: Recording, optimisations: Optimisations = ALL) -> Formed:
    """Return a program as data.

    Parameters
    ----------
    recording : Recording
    optimisations : Optimisations
        Whether tensor code is joined, and calls run side by side.

    Raises
    ------
    ModelError
        It cannot be compiled; names file and line.
    """
    return _Forming(recording, optimisations).run()


class _UnknownValueError(ModelError):
    """A constant that the machine has not."""


class _Forming:
    def __init__(self, recording: Recording, optimisations: Optimisations) -> None:
        self._optimisations = optimisations
        self._contexts = merged(recording.contexts, recording.entries)
        self._records = recording.records
        self._classes = recording.classes
        self._types: list[Type] = []
        self._constants: list[Any] = []
        self._numbers: dict[tuple[type, str], int] = {}  # of constants
        self._lookups: list[list[list[int]]] = []
        self._tensors: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._throws = note_exceptions(recording)
        self._record_names = list(recording.records)
        self._functions: dict[int, int] = {}
        self._throwing: dict[int, ThrowingCode] = {}
        self._blocks: dict[str, int] = {}
        self._found = Formed({})

    def run(self) -> Formed:
        self._functions = {
            number: at for at, number in enumerate(dict.fromkeys(one.number for one in self._contexts))
        }
        functions = [self._function(self._contexts[number]) for number in self._functions]
        if self._throws:
            check_generators(self._throwing)
        self._found.form = {
            "types": [{"dtype": dtype, "shape": list(shape)} for dtype, shape in self._types],
            "records": [{"name": name, "fields": own} for name, own in self._records.items()],
            "names": self._names,
            "constants": self._constants,
            "lookups": self._lookups,
            "tensors": self._tensors,
            "functions": functions,
            "entry": 0,
        }
        return self._found

    def type_number(self, type_: Type) -> int:
        if type_ not in self._types:
            self._types.append(type_)
        return self._types.index(type_)

    def _function(self, context: Context) -> dict[str, Any]:
        code = self._lowered(context)
        tree, name = context.source.tree, context.source.function.__name__
        generator = f"{context.source.where(tree)}: {name}" if was_generator(tree) else ""
        self._throwing[context.number] = ThrowingCode(code, self._classes, generator)
        parameters = len(context.source.parameters) - len(context.statics)
        instructions, registers = finished(code.instructions, parameters)
        places: dict[int, int] = {}
        kept: list[Instruction] = []
        for one in instructions:
            if one.word == "label":
                places[id(one.target)] = len(kept)
            elif one.word != "caught":
                kept.append(one)
        handlers = handlers_of(kept, instructions, places)
        return {
            "name": context.source.function.__qualname__,
            "parameters": parameters,
            "registers": registers,
            "code": [self._placed(one, places, Path(context.source.file).name) for one in kept],
            "lines": [one.line for one in kept],
            "file": Path(context.source.file).name,
            **({"handlers": handlers} if handlers else {}),
        }

    def _lowered(self, context: Context) -> Code:
        """Return the code of a function, with tests where a variable may be read before it is assigned."""
        known = (self._contexts, self._records, self._classes, self._optimisations, self._throws)
        code = FunctionLowering(context, *known).run()
        parameters = len(context.source.parameters) - len(context.statics)
        read = read_before_written(code.instructions, parameters)
        doubtful = {name for name, register in code.variables.items() if register in read and " " not in name}
        is_own = is_of_library(context.source)
        return FunctionLowering(context, *known, doubtful).run() if doubtful and not is_own else code

    def _placed(self, one: Instruction, places: dict[int, int], file: str) -> list[Any]:
        try:
            return self._encoded(one, places)
        except _UnknownValueError as error:
            raise ModelError(f"{file}:{one.line}: {error}") from None

    def _encoded(self, one: Instruction, places: dict[int, int]) -> list[Any]:
        """Return an instruction as the form has it."""
        writes, reads = one.writes, one.reads
        if one.group is not None:
            return ["block", list(writes), self._block(one.group), list(reads)]
        if one.target is not None:
            return [one.word, *reads, places[id(one.target)]]
        if one.word in ("lookup", "setfield"):
            find = self._lookup if one.word == "lookup" else self._name
            return [one.word, *writes, reads[0], find(one.rest[0]), reads[1]]
        if one.word in ("unary", "binary", "as", "apart"):
            return [one.word, *([writes] if one.word == "apart" else writes), *one.rest, *reads]
        number = {
            "const": lambda: self._constant(one.rest[0].value),
            "raise": lambda: self._constant(one.rest[0].value),
            "tensor": lambda: self._tensor(one.rest[0]),
            "call": lambda: self._functions[one.rest[0]],
            "spawn": lambda: self._functions[one.rest[0]],
            "record": lambda: self._record_names.index(one.rest[0]),
            "field": lambda: self._name(one.rest[0]),
            "format": lambda: self._constant(one.rest[0].value),
        }.get(one.word)
        if one.word in ("call", "spawn", "record", "tuple", "list", "join"):
            return [one.word, *writes, *([] if number is None else [number()]), list(reads)]
        return [one.word, *writes, *reads, *(one.rest if number is None else [number()])]

    def _constant(self, value: Any) -> int:
        if value is not None and not isinstance(value, bool | int | float | str):
            raise _UnknownValueError(
                f"{clip(value)} is a value of the program; allowed: numbers, texts, None"
            )
        key = (type(value), repr(value))  # 0.0 and -0.0 are two
        if key not in self._numbers:
            self._numbers[key] = len(self._constants)
            self._constants.append(value)
        return self._numbers[key]

    def _lookup(self, pairs: Mapping[Any, Any]) -> int:
        own = [[self._constant(key), self._constant(value)] for key, value in pairs.items()]
        if own not in self._lookups:
            self._lookups.append(own)
        return self._lookups.index(own)

    def _name(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def _tensor(self, known: Any) -> int:
        array = np.asarray(known.value.detach().cpu().numpy(), order="C")
        if array.dtype != np.float32:
            raise ModelError(f"{known.name}: {array.dtype} as a value of the program; allowed: float32")
        name = self._found.weights.name_of(array, _plain(known.name))
        own = {"value": name, "type": self.type_number(("float32", array.shape))}
        if own not in self._tensors:
            self._tensors.append(own)
        return self._tensors.index(own)

    def _block(self, group: OperationGroup) -> int:
        try:
            results = tuple(result_type_of(one.kind) for one in group.results)
            operands = tuple(type_of(one.kind) for one in group.operands)
        except ModelError as error:
            raise ModelError(f"{group.where}: {error}") from None
        graph = export_group(group, self._found.weights)
        key = signature_of(graph, operands)
        made = [one.is_made for one in group.operands]
        if key not in self._blocks:
            self._blocks[key] = len(self._found.blocks)
            for one in (*operands, *results):
                self.type_number(one)
            self._found.blocks.append(FormedBlock(graph, operands, results, made, group))
        known = self._found.blocks[self._blocks[key]]
        known.is_made[:] = [old or new for old, new in zip(known.is_made, made, strict=True)]
        return self._blocks[key]


def _plain(text: str) -> str:
    return (
        "".join(one if one.isalnum() or one in "._" else "_" for one in text).strip("._")[:60] or "constant"
    )


def merged(contexts: Sequence[Context], entries: Iterable[int]) -> list[Context]:
    """Return for each context the one that it is compiled as.

    Parameters
    ----------
    contexts : sequence of Context
        Those that one call may call become one.
    entries : iterable of int
        Those of the program itself, which become one too.
    """
    parents = list(range(len(contexts)))

    def root(number: int) -> int:
        while parents[number] != number:
            number = parents[number]
        return number

    for number in entries:
        parents[number] = 0
    changed = True
    while changed:
        changed = False
        for calls in _calls(contexts, root).values():
            first, *others = sorted({root(one) for one in calls})
            for one in others:
                if contexts[one].statics.keys() != contexts[first].statics.keys() or any(
                    contexts[one].statics[name] is not value
                    for name, value in contexts[first].statics.items()
                ):
                    continue  # refused where it is called
                parents[one] = first
                changed = True
    for number, context in enumerate(contexts):
        target = contexts[root(number)]
        if target is context:
            continue
        target.reached |= context.reached
        for key, site in context.sites.items():
            known = target.sites.setdefault(key, site)
            if known is not site:
                known.kinds |= site.kinds
                known.callees |= site.callees
                known.is_made |= site.is_made
                known.role = known.role or site.role
                if known.role == "method" and site.value:
                    for name, (function, numbers) in site.value.items():
                        known.value.setdefault(name, (function, {}))[1].update(numbers)
                if known.role == "applied" and site.value:
                    known.value |= site.value
                known.value = site.value if known.value is None else known.value
    return [contexts[root(number)] for number in range(len(contexts))]


def _calls(contexts: Sequence[Context], root: Any) -> dict[Any, set[int]]:
    found: dict[Any, set[int]] = {}
    for number, one in enumerate(contexts):
        for key, site in one.sites.items():
            if site.callees:
                found.setdefault((root(number), key), set()).update(map(root, site.callees))
    return {key: calls for key, calls in found.items() if len(calls) > 1}
