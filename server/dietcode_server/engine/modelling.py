"""A job about a model: its graph is taken apart, each part is tuned as a spec is, and a bundle published.

A part is a library of its own, shared by all models that have it. A worker that was killed left the libraries
of the parts that were done, and the records of the one that it was at: the next one goes on from there.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dietcode.errors import DietCodeError, SpecError, TuningError
from dietcode.graph.model_request import ModelOrder
from dietcode.models.budgets import LEAST_MEASURED
from dietcode.models.compiling import labelled
from dietcode.models.planning import ModelPlan, PlannedPart
from dietcode.protocol import JobState
from dietcode.tuner.events import Event
from dietcode.workload.identity import workload_digest
from dietcode.workload.text import one_line
from dietcode_server.engine.assignment import Assignment
from dietcode_server.engine.keeper import SqlKeeper
from dietcode_server.engine.planning import plan_apart
from dietcode_server.engine.publishing import Shown, code_of, keep_shown, publish_model
from dietcode_server.engine.reporter import Reporter
from dietcode_server.limits import check_limits
from dietcode_server.store import leases, libraries, model_parts, provenance
from dietcode_server.store.leases import LeaseLostError
from dietcode_server.store.model_parts import PartState
from dietcode_server.store.patience import patiently
from dietcode_server.store.subjects import asked_of
from dietcode_server.store.tables import LibraryRow, Workload

if TYPE_CHECKING:
    from dietcode.measure.engine import Device, Engine
    from dietcode.tuner.result import TuneResult
    from dietcode_server.engine.holding import HeldChildren


class _NotHereError(DietCodeError):
    """The job's device is not this machine's."""


def compile_and_publish(own: Assignment) -> None:
    """Carry out a claimed job about a model.

    Raises
    ------
    ModelError, SpecError
        The graph cannot be compiled, or a part is too large for this server.
    TuningError
        A part failed; it is named, and what the others made is kept.
    """
    reporter = own.reporter()
    plan = _planned(own, reporter)
    with ExitStack() as stack:
        bench = _Bench(own, stack, reporter)
        try:
            made = [bench.library_of(plan, number) for number in range(len(plan.parts))]
        except _NotHereError:
            own.finish(JobState.WAITING_FOR_RUNNER)
            return
    patiently(lambda: publish_model(own.database, own.job, own.runner, plan, made))


def _planned(own: Assignment, reporter: Reporter) -> ModelPlan:
    """Take the graph apart, compare its parts with the server's limits, and enter them."""
    order = asked_of(own.job)
    assert isinstance(order, ModelOrder)
    with own.database.read() as session:
        graph = dict(session.get_one(Workload, own.job.workload).spec)
    plan = plan_apart({**graph, "name": order.name}, order.options())
    count = len(plan.parts)
    reporter.on_event(Event("plan", f"{plan.facts['num_operators']} operators, {count} parts to tune", 1, 1))
    for part in plan.parts:
        if own.limits is not None:
            try:
                check_limits(part.spec, own.limits)
            except SpecError as error:
                raise SpecError(part.name, str(error)) from None
    rows = [
        {
            "digest": part.digest,
            "name": part.name[:64],
            "kind": part.kind[:64],
            "operator": part.spec.op.whole,
            "calls": part.calls,
            "flops": float(part.flops_at_most),
        }
        for part in plan.parts
    ]

    def enter() -> None:
        with own.database.write() as session:
            leases.require(session, own.job.id, own.runner)
            model_parts.enter_parts(session, own.job.id, rows)

    patiently(enter)
    return plan


class _Bench:
    """Where parts are tuned, one after the other; opened for the first that is not known."""

    def __init__(self, own: Assignment, stack: ExitStack, reporter: Reporter) -> None:
        self._own, self._stack, self._reporter = own, stack, reporter
        self._opened: tuple[Engine, Device, HeldChildren | None] | None = None

    def library_of(self, plan: ModelPlan, number: int) -> LibraryRow:
        """Return the library of a part: one that is there, or a new one.

        Raises
        ------
        TuningError
            It cannot be made; the part is named.
        """
        part, count = plan.parts[number], len(plan.parts)
        name = model_parts.library_name(part.kind, part.digest, str(self._own.job.device_id), part.fields)
        known = patiently(lambda: self._known(name, number))
        if known is not None:
            event = Event("part", f"{number + 1} of {count}, {part.name}: built before", number + 1, count)
            self._reporter.on_event(event)
            return known
        patiently(lambda: self._note(number, "tuning"))
        self._reporter.best_gflops = None
        try:
            result, shown = self._tuned(part, f"part {number + 1} of {count}, {part.name}")
            return patiently(lambda: self._publish(name, number, result, shown))
        except (_NotHereError, LeaseLostError):
            raise
        except Exception as error:
            patiently(lambda: self._note(number, "failed"))
            if not isinstance(error, DietCodeError):
                raise
            raise TuningError(f"part {number + 1} of {count}, {part.name}: {error}") from error

    def _known(self, name: str, number: int) -> LibraryRow | None:
        """Return what this job made before, or, unless it measures anew, what any job did."""
        own = self._own
        with own.database.write() as session:
            leases.require(session, own.job.id, own.runner)
            row = model_parts.parts_of(session, own.job.id)[number]
            library = None if row.library_id is None else session.get(LibraryRow, row.library_id)
            if library is not None and library.name == name:
                return library
            found = None if own.job.force else model_parts.known_library(session, name)
            if found is not None:
                model_parts.set_state(session, own.job.id, number, "reused", found)
            return found

    def _note(self, number: int, state: PartState) -> None:
        own = self._own
        with own.database.write() as session:
            leases.require(session, own.job.id, own.runner)
            model_parts.set_state(session, own.job.id, number, state)

    def _tuned(self, part: PlannedPart, label: str) -> tuple[TuneResult, Shown]:
        from dietcode.tuner.search import Search
        from dietcode.tuner.tune import make_library
        from dietcode_server.engine.comparing import compare_library

        own, spec = self._own, part.spec
        on_event = labelled(self._reporter.on_event, label)
        engine, device, children = self._open(part)
        keeper = SqlKeeper(own.database, own.job, own.work_root, part.fields)
        known: Any = None
        if not own.job.measure:
            known = keeper.open(workload_digest(spec), device.record).records
        result = make_library(
            spec,
            known=known,
            keeper=keeper,
            on_event=on_event,
            children=children,
            engine=engine,
            search=Search(least=LEAST_MEASURED),
        )
        holds = own.heartbeat.holds
        rows = compare_library(own.job, result, own.compare, own.engine.kind, on_event, holds)
        return result, Shown(rows, code_of(result.report))

    def _open(self, part: PlannedPart) -> tuple[Engine, Device, HeldChildren | None]:
        if self._opened is None:
            from dietcode.measure.opening import open_engine

            own = self._own
            engine = self._stack.enter_context(open_engine(own.engine))
            device = own.device_of(engine, part.spec.target)
            if device is None:
                raise _NotHereError("the job's device is not this machine's")
            children = own.children(engine, device, self._stack, self._reporter) if own.job.measure else None
            self._opened = engine, device, children
        return self._opened

    def _publish(self, name: str, number: int, result: TuneResult, shown: Shown) -> LibraryRow:
        own = self._own
        with own.database.write() as session:
            row = leases.require(session, own.job.id, own.runner)
            device = one_line(str(result.device["name"]))
            library = libraries.publish(session, job=row, device_name=device, files=result.files, part=name)
            provenance.note_records(session, library, row.device_id)
            keep_shown(session, library, shown)
            model_parts.set_state(session, own.job.id, number, "tuned", library)
            return library
