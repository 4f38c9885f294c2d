"""How often each number of rows comes, and which block reads which: samples, with blocks by PyTorch."""

from __future__ import annotations

import ctypes
import warnings
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dietcode.frontends.python.blocks import RegionBlock
from dietcode.frontends.python.region_modules import numbers_as_tensors
from dietcode.graph.program_model import MAX_ROWS, NUMBER, NumberSource
from dietcode.runtime.recorded.variants import Type, machine_of_types

Sources = tuple[NumberSource | None, ...]


class TorchMachine:
    """A machine whose blocks PyTorch computes, row by row.

    Parameters
    ----------
    blocks : sequence of RegionBlock
    phases : sequence of int
    constants : sequence of array
        Rows that regions return.

    Attributes
    ----------
    machine : Machine
    types : list of Type
    """

    def __init__(
        self, blocks: Sequence[RegionBlock], phases: Sequence[int], constants: Sequence[Any]
    ) -> None:
        self._blocks = blocks
        self._one_by_one: set[int] = set()
        kept = [np.array(one, np.float32, order="C") for one in constants]  # 0-d ones stay 0-d
        self.types: list[Type] = [("float32", one.shape) for one in kept]
        for block in blocks:
            self.types += [*block.operands, *block.results]
        self.types = list(dict.fromkeys([*self.types, NUMBER, ("float32", ())]))
        words, num_buffers = self._words(phases)
        program = array("q", [num_buffers, len(blocks), *[0] * len(blocks), 0, 0])
        pairs = [
            (self.types.index(("float32", one.shape)), one.__array_interface__["data"][0]) for one in kept
        ]
        self.machine = machine_of_types(
            self.types, pairs, MAX_ROWS, words, len(blocks), num_buffers, program, kept
        )

    def _words(self, phases: Sequence[int]) -> tuple[list[int], int]:
        """Return the blocks as the recorder takes them, and how many buffers they have."""
        words: list[int] = []
        num_buffers = 0
        for block, phase in zip(self._blocks, phases, strict=True):
            words += [phase, MAX_ROWS, len(block.operands), len(block.results), 0]
            for one in block.operands:
                is_number = one == NUMBER
                words += [self.types.index(one), num_buffers, num_buffers + 1, int(is_number), -1]
                num_buffers += 2
            for one in block.results:
                words += [self.types.index(one), num_buffers]
                num_buffers += 1
            words.append(-1)
        return words, num_buffers

    def compute(self, block: int, depth: int, count: int, operands: Any, results: Any) -> None:
        """Run a block; as the recorder calls it."""
        import torch

        own = self._blocks[block]
        given: list[Any] = []
        for (dtype, shape), (table, positions) in zip(own.operands, operands, strict=True):
            at = _array(positions, np.int32, (count,))
            if dtype == "int32":
                given.append(torch.from_numpy(at.astype(np.int64)))
            else:
                rows = _array(table, np.float32, (int(at.max()) + 1, *shape))
                given.append(torch.from_numpy(rows[at]))
        targets = [
            _array(address, np.float32, (count, *shape))
            for (_, shape), address in zip(own.results, results, strict=True)
        ]
        with torch.no_grad(), numbers_as_tensors(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators that vmap takes row by row
            for target, made in zip(targets, self._computed(block, given, count), strict=True):
                target[...] = made.numpy().reshape(target.shape)

    def _computed(self, block: int, given: Sequence[Any], count: int) -> Sequence[Any]:
        """Return a block's results for rows, all at once where PyTorch can."""
        import torch

        module = self._blocks[block].module
        if count > 1 and block not in self._one_by_one:
            try:
                return list(torch.func.vmap(module)(*given))
            except (RuntimeError, NotImplementedError, ValueError):  # an operator that has no rule for it
                self._one_by_one.add(block)
        rows = [module(*(one[row] for one in given)) for row in range(count)]
        return [torch.stack(one) for one in zip(*rows, strict=True)]


def _array(address: int, dtype: Any, shape: tuple[int, ...]) -> Any:
    size = 4 * int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


@dataclass
class SampleRuns:
    """What runs of samples note.

    Attributes
    ----------
    buckets : list of (int, int, int, int)
        Flush, depth with its phase, block, and rows of each.
    flushes : list of Counter of int
        By block, how many calls each noted.
    edges : set of (int, int)
        (reader, read) blocks.
    sources : list of Counter
        Of each bucket, how many of its rows had which sources.
    made : set of (int, int)
        The operands, of each block, that a block computed.
    """

    blocks: Sequence[RegionBlock]
    buckets: list[tuple[int, int, int, int]] = field(default_factory=list)
    flushes: list[Counter[int]] = field(default_factory=list)
    edges: set[tuple[int, int]] = field(default_factory=set)
    sources: list[Counter[Sources | None]] = field(default_factory=list)
    made: set[tuple[int, int]] = field(default_factory=set)
    _makers: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)

    def observe(self, nodes: Sequence[tuple[int, int, tuple[int, ...], int]]) -> None:
        """Take the nodes of a flush; as the recorder calls it."""
        if not nodes:
            return
        flush = len(self.flushes)
        self.flushes.append(Counter(block for block, *_ in nodes))
        rows: dict[tuple[int, int], Counter[Sources | None]] = {}
        for number, (block, depth, operands, first) in enumerate(nodes):
            for result in range(len(self.blocks[block].results)):
                self._makers[first + result] = flush, number, block, result
            rows.setdefault((depth, block), Counter())[self._sources(block, operands, flush)] += 1
        for (depth, block), counts in sorted(rows.items(), key=lambda one: one[0]):
            self.buckets.append((flush, depth, block, sum(counts.values())))
            self.sources.append(counts)

    def _sources(self, block: int, operands: Sequence[int], flush: int) -> Sources | None:
        leaders: dict[int, int] = {}
        found: list[NumberSource | None] = []
        are_numbers = True
        for at, one in enumerate(operands):
            maker = self._makers.get(one)
            if maker is None:
                found.append(None)
                continue
            self.made.add((block, at))
            of_flush, node, own, result = maker
            self.edges.add((block, own))
            if self.blocks[own].operands != (NUMBER,) or of_flush != flush:
                are_numbers = False
                continue
            found.append(NumberSource(own, result, leaders.setdefault(node, at)))
        return tuple(found) if leaders and are_numbers else None
