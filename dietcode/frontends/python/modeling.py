"""From a marked function and samples to a recorded program as data: needs PyTorch."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dietcode.errors import ModelError
from dietcode.frontends.python.blocks import Blocks, RegionBlock
from dietcode.frontends.python.discovery import Discovery, Found
from dietcode.frontends.python.forming import Forming
from dietcode.frontends.python.observing import (
    Observation,
    assigned_attributes,
    is_in_place,
    same_random_numbers,
)
from dietcode.frontends.python.profile import SampleRuns, TorchMachine
from dietcode.frontends.python.purity import Purity
from dietcode.frontends.python.runtime_variants import runtime_variant
from dietcode.graph.program_model import MAX_SHOWN, BlockModel, Bucket, rows_of_tables
from dietcode.graph.recorded_model import RecordedModel
from dietcode.programs.module import Program
from dietcode.programs.optimisations import ALL, Optimisations
from dietcode.programs.profiling import lowest_of, phases_of
from dietcode.runtime.recorded.calling import Arguments, record_instances
from dietcode.runtime.recorded.regions import SourceRegion, UnitParts
from dietcode.runtime.recorded.session import Rewritten, Session, class_of
from dietcode.runtime.recorded.units import SourceUnit
from dietcode.runtime.recorded.variants import RecordedRegion, Variant

if TYPE_CHECKING:
    from dietcode.frontends.python.eager import EagerUses, LeftOut

BATCHES = (1, 8)  # instances of a call that count beside all samples at once
_MOST_ROUNDS = 12


@dataclass
class FormedProgram:
    """A program whose functions have regions, with blocks that PyTorch computes.

    Attributes
    ----------
    program : Program
    blocks : Blocks
    regions : list of RecordedRegion
    units : dict of SourceUnit to UnitParts
    rewritten : Rewritten
    constants : list of str
        Weights that regions return.
    samples : list
    passed_on : list of str
        Attributes that an instance reads as the one before left them: then they run in order.
    left_out : list of LeftOut
        Tensor code that is no block.
    files : frozenset of str
        Of its functions.
    """

    program: Program
    blocks: Blocks
    regions: list[RecordedRegion]
    units: dict[SourceUnit, UnitParts]
    rewritten: Rewritten
    constants: list[str]
    samples: list[Any] = field(default_factory=list)
    passed_on: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    files: frozenset[str] = frozenset()
    assigned: list[str] = field(default_factory=list)

    def run(
        self,
        machine: TorchMachine,
        instances: Sequence[Any],
        watched: SampleRuns | None = None,
        uses: EagerUses | None = None,
    ) -> list[Any]:
        """Return the results of instances, or their exceptions, by blocks that PyTorch computes.

        Parameters
        ----------
        machine : TorchMachine
        instances : sequence
        watched : SampleRuns, optional
            Gets what is noted.
        uses : EagerUses, optional
            Counts what else PyTorch computes.
        """
        session = Session(
            self.regions, machine.machine, machine.types, class_of, self._accepts, self.assigned
        )
        self.rewritten.install()
        observe = None if watched is None else watched.observe
        compute = machine.compute if uses is None else uses.uncounted(machine.compute)
        with uses or nullcontext():
            return record_instances(
                self.program,
                instances,
                session,
                compute,
                observe,
                counts=None if uses is None else uses.counts,
                in_order=bool(self.passed_on),
            )

    def _accepts(self, variants: Sequence[tuple[Variant, dict[str, Any]]]) -> Variant | None:
        """Return the variant whose blocks were made for some weights."""
        arrays = self.blocks.weights.arrays
        for variant, weights in variants:
            if all(
                arrays[name].__array_interface__["data"][0] == one.data_ptr() for name, one in weights.items()
            ):
                return variant
        return None

    def machine(self, phases: Sequence[int] | None = None) -> TorchMachine:
        """Return a machine of its blocks."""
        known = phases or [0] * len(self.blocks.blocks)
        return TorchMachine(
            self.blocks.blocks, known, [self.blocks.weights.arrays[name] for name in self.constants]
        )


def form_program(program: Program, samples: Sequence[Any]) -> FormedProgram:
    """Find the regions of a program, and make blocks of them.

    Parameters
    ----------
    program : Program
    samples : sequence
        Instances, as the program takes them.

    Raises
    ------
    ModelError
        A sample fails.
    """
    run = _runner(program, samples)
    observation = Observation(run)
    purity = Purity(observation)
    may_change = _may_change(observation)
    own_attributes = observation.facts.shared.own
    broken: dict[SourceUnit, set[int]] = {unit: set() for unit in observation.units}
    blocks = Blocks(purity.assigned)
    left_out: list[LeftOut] = []
    for _ in range(_MOST_ROUNDS):
        units: dict[SourceUnit, UnitParts] = {}
        for unit in observation.units:
            forming = Forming(observation, purity, unit, broken[unit]).run()
            parts = UnitParts(
                forming.regions, forming.concurrent, _stored(unit, own_attributes), forming.instances
            )
            if parts:
                units[unit] = parts
        discovery = Discovery(observation, units, may_change, purity.assigned)
        discovery.run(run)
        refused = {id(found) for found, _ in discovery.refused}
        is_broken = False
        blocks.begin()
        reasons: dict[int, str] = {}
        for number, found in enumerate(discovery.found):
            if not found.examples and id(found) not in refused:
                continue
            reason = next((one for own, one in discovery.refused if own is found), None)
            if reason is None:
                reason = blocks.add(number, found)
            if reason is not None:
                reasons[number] = reason
                can_be_parts = _break(found, broken[found.unit])
                if not can_be_parts or found.region.is_single:
                    left_out.append(_left_out(found.unit, found.region, reason))
                is_broken |= can_be_parts
        if not is_broken:
            break
    blocks.finish()
    return _formed(program, samples, observation, units, discovery, blocks, reasons, left_out)


def _break(found: Found, broken: set[int]) -> bool:
    """Let a region that is no block be parts of it next time; return whether it has any."""
    region = found.region
    nodes = region.statements if len(region.statements) + len(region.hoisted) > 1 else ()
    if nodes:  # statements of their own first
        new = set(nodes) - broken
        broken |= new
        return bool(new)
    number = (region.statements or region.hoisted)[0]
    node: Any = found.unit.nodes[number]
    if region.statements:
        node = node.value
        broken.add(number)
    number = found.unit.numbers[node]
    if number in broken:
        return False
    broken.add(number)
    return True


def _left_out(unit: SourceUnit, region: SourceRegion, reason: str) -> LeftOut:
    from dietcode.frontends.python.eager import LeftOut

    nodes: list[Any] = [unit.nodes[one] for one in (*region.statements, *region.hoisted)]
    return LeftOut(unit.file, nodes[0].lineno, max(one.end_lineno for one in nodes), reason)


def _stored(unit: SourceUnit, names: Collection[str]) -> list[int]:
    """Return where a unit sets some attributes."""
    return [
        number
        for number, node in enumerate(unit.nodes)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in names
    ]


def _may_change(observation: Observation) -> bool:
    """Whether a tensor may be changed in place somewhere."""
    for unit in observation.units:
        for node in unit.nodes:
            if not is_in_place(node):
                continue
            value: Any = getattr(node, "value", None) or node.func.value  # type: ignore[attr-defined]
            known = observation.fact(unit, value)
            if known is None or known.is_wild or any(kind[0] == "tensor" for kind in known.kinds):
                return True
    return False


def _formed(
    program: Program,
    samples: Sequence[Any],
    observation: Observation,
    units: dict[SourceUnit, UnitParts],
    discovery: Discovery,
    blocks: Blocks,
    reasons: dict[int, str],
    left_out: list[LeftOut],
) -> FormedProgram:
    constants: list[str] = []
    regions: list[RecordedRegion] = []
    kept: dict[SourceUnit, UnitParts] = {}
    for number, found in enumerate(discovery.found):
        made = [runtime_variant(one, constants) for one in blocks.variants.get(number, ())]
        if made or number in reasons:
            reason = reasons.get(number, "")
            regions.append(RecordedRegion(found.unit, found.region, made, reason, sorted(found.reads)))
        if made:
            kept.setdefault(found.unit, replace(units[found.unit], regions=[])).regions.append(found.region)
    for unit, parts in units.items():
        if replace(parts, regions=[]):
            kept.setdefault(unit, replace(parts, regions=[]))
    rewritten = Rewritten(kept, observation.flags, observation.globals)
    passed_on = sorted(observation.facts.shared.passed_on)
    return FormedProgram(
        program, blocks, regions, kept, rewritten, constants, list(samples), passed_on, left_out,
        frozenset(observation.flags), sorted(assigned_attributes(observation.units)),
    )  # fmt: skip


def _runner(program: Program, samples: Sequence[Any]) -> Callable[..., list[Any]]:
    arguments = Arguments(program)

    def run(begin: Callable[[int], None] = lambda number: None) -> list[Any]:
        import torch

        found: list[Any] = []
        with torch.no_grad():
            for number, one in enumerate(samples):
                begin(number)
                try:
                    found.append(program.function(*arguments(copy.deepcopy(one))))
                except Exception as error:
                    found.append(error)
        return found

    return run


def record(
    program: Program, samples: Sequence[Any], name: str, optimisations: Optimisations = ALL
) -> tuple[RecordedModel, FormedProgram]:
    """Return a program as data, and what it was made of.

    Parameters
    ----------
    program : Program
    samples : sequence
        Instances, as the program takes them.
    name : str
        What it is called.
    optimisations : Optimisations
        Of these, those that recording shows.

    Raises
    ------
    ModelError
        There is no sample, or nothing to compile.
    """
    if not samples:
        raise ModelError("--samples: there is none; allowed: a list of instances")
    formed = form_program(program, samples)
    many = len(formed.blocks.blocks)
    if not many:
        raise ModelError(
            f"{name}: has no tensor code that depends on an instance and has a kernel; "
            "there is nothing to compile"
        )
    from dietcode.frontends.python.eager import EagerUses, eager_places

    uses = EagerUses()
    first = _watched(formed, [0] * many, len(samples), uses)
    missed = [(one, reason) for one in formed.regions for reason in one.eager]
    left_out = [*formed.left_out, *(_left_out(one.unit, one.region, reason) for one, reason in missed)]
    eager = eager_places(uses.counts, left_out, formed.files)
    phases = phases_of(first.edges, many) if optimisations.phases else [0] * many
    sizes = sorted({len(samples), *(one for one in BATCHES if one < len(samples))})
    runs = [_watched(formed, phases, size) for size in sizes]
    blocks = _block_models(formed.blocks.blocks, runs, phases)
    constants = tuple((one, formed.blocks.weights.arrays[one].shape) for one in formed.constants)
    waits = len(first.flushes) > 1  # otherwise there is nothing to run meanwhile
    parts = {unit: own if waits else replace(own, concurrent=[]) for unit, own in formed.units.items()}
    units = tuple(_unit_json(unit, own, formed.regions) for unit, own in parts.items() if own)
    rows = rows_of_tables(blocks)
    model = RecordedModel(
        name, blocks, constants, units, len(samples), rows, _shown(runs),
        tuple(formed.passed_on), waits, eager, tuple(formed.assigned),
    )  # fmt: skip
    return model, formed


def _block_models(
    blocks: Sequence[RegionBlock], runs: Sequence[SampleRuns], phases: Sequence[int]
) -> tuple[BlockModel, ...]:
    """Return blocks with what runs of samples show of them."""
    buckets: list[Counter[int]] = [Counter() for _ in blocks]
    together: list[Counter[int]] = [Counter() for _ in blocks]
    made: list[set[int]] = [set() for _ in blocks]
    for run in runs:
        for _, _, block, rows in run.buckets:
            buckets[block][rows] += 1
        for counts in run.flushes:
            for block, rows in counts.items():
                together[block][rows] += 1
        for block, at in run.made:
            made[block].add(at)
    return tuple(
        BlockModel(
            one.graph,
            one.operands,
            one.results,
            tuple(at in made[number] for at in range(len(one.operands))),
            phases[number],
            dict(buckets[number]),
            dict(together[number]),
            lowest_of(runs, number),
        )
        for number, one in enumerate(blocks)
    )


def _shown(runs: Sequence[SampleRuns]) -> tuple[Bucket, ...]:
    """Return the buckets of the largest run that has few enough."""
    shown: list[Bucket] = []
    for run in runs:
        if not shown or len(run.buckets) <= MAX_SHOWN:
            shown = run.buckets[:MAX_SHOWN]
    return tuple(shown)


def _watched(
    formed: FormedProgram, phases: Sequence[int], size: int, uses: EagerUses | None = None
) -> SampleRuns:
    watched = SampleRuns(formed.blocks.blocks)
    with same_random_numbers():
        given = [copy.deepcopy(one) for one in formed.samples[:size]]
        formed.run(formed.machine(phases), given, watched, uses)
    return watched


def _unit_json(unit: SourceUnit, parts: UnitParts, regions: Sequence[RecordedRegion]) -> dict[str, Any]:
    known = {one.region: one for one in regions if one.unit is unit}
    return {
        "file": unit.file.rpartition("/")[2],
        "qualname": unit.qualname,
        "digest": unit.digest,
        "concurrent": parts.concurrent,
        "stored": parts.stored,
        "instances": parts.instances,
        "regions": [
            {
                "region": region.to_json(),
                "line": region.first_line(unit),
                "variants": [one.to_json() for own in known[region].variants.values() for one in own],
                "reason": known[region].reason,
                "reads": [list(one) for one in known[region].reads],
            }
            for region in parts.regions
        ],
    }
