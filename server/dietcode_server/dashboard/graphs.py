"""The graph of a model on its pages: its steps in order, equal runs of them once with a count."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from dietcode.runtime.manifest import MODEL, REPORT
from dietcode_server.dashboard.structures import file_of
from dietcode_server.store import libraries
from dietcode_server.store.comparisons import SpeedUp, speed_ups
from dietcode_server.store.model_parts import predicted_gflops
from dietcode_server.store.tables import LibraryRow

MOST_STEPS = 5000  # of a graph that is shown
_LONGEST_RUN = 64  # steps of a run that is looked for
_log = logging.getLogger("dietcode.dashboard")


@dataclass(frozen=True)
class GraphStep:
    """A part that is called, or what the host computes between two parts.

    Attributes
    ----------
    part : str
        The digest of a part; empty for the host's steps.
    words : str
        What the host computes, or how deep in branches and loops a part is.
    """

    part: str
    words: str


@dataclass(frozen=True)
class RunOfSteps:
    """Steps that are repeated one after the other.

    Attributes
    ----------
    count : int
        How often; from 1.
    shown : tuple of GraphStep
    """

    count: int
    shown: tuple[GraphStep, ...]


@dataclass(frozen=True)
class PartFacts:
    """What is shown of a part.

    Attributes
    ----------
    name, operator : str
    library : LibraryRow
    calls : int
        0 where a loop calls it as often as values say.
    categories : int
    share : float or None
        Of the time of all parts in a call with the largest shapes, by FLOPs and predicted throughput.
    speed_up : SpeedUp or None
        Its speed over that of the vendor's fastest kernel, where it was compared.
    """

    name: str
    operator: str
    library: LibraryRow
    calls: int
    categories: int
    share: float | None
    speed_up: SpeedUp | None


@dataclass(frozen=True)
class GraphView:
    """What a page shows of a model's graph.

    Attributes
    ----------
    runs : list of RunOfSteps
    parts : dict of str to PartFacts
        By digest.
    num_steps : int
        Steps before equal runs were put together.
    """

    runs: list[RunOfSteps]
    parts: dict[str, PartFacts]
    num_steps: int


def graph_of(session: Session, bundle: LibraryRow) -> GraphView | None:
    """Return what is shown of a published model; None of a recursion, and where it cannot be read."""
    model, report = (file_of(session, bundle.id, name) for name in (MODEL, REPORT))
    if model is None or report is None:
        return None
    try:
        listed = list(graph_steps(model["steps"]))
        parts = _facts(session, bundle, report["parts"])
    except (KeyError, TypeError, ValueError) as error:
        _log.error("graph of %s@%s: %s", bundle.name, bundle.version, error)
        return None
    if len(listed) > MOST_STEPS or any(one.part and one.part not in parts for one in listed):
        return None
    return GraphView(runs_of(listed), parts, len(listed))


def graph_steps(bundled: Sequence[Mapping[str, Any]], within: str = "") -> Iterator[GraphStep]:
    """Yield parts in the order of their calls, and between them what the host computes.

    Parameters
    ----------
    bundled : sequence of mapping
        As in a bundle's ``model.json``.
    within : str
        The branch or loop that they are in.
    """
    host: dict[str, int] = {}

    def between() -> Iterator[GraphStep]:
        if host:
            words = ", ".join(name if count == 1 else f"{count} {name}" for name, count in host.items())
            yield GraphStep("", f"{within}: {words}" if within else words)
            host.clear()

    for step in bundled:
        if "kernel" in step:
            yield from between()
            yield GraphStep(step["kernel"], within)
        elif "host" in step:
            if not step.get("view"):
                host[step["host"]] = host.get(step["host"], 0) + 1
        else:
            yield from between()
            for word, inner in _inner(step):
                yield from graph_steps(inner, word)
    yield from between()


def _inner(step: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    if "branch" in step:
        for word in ("then", "else"):
            yield f"branch, {word}", step[word]
    elif "loop" in step:
        loop = step["loop"]
        if loop["condition"]:
            yield "loop, condition", loop["condition"]["steps"]
        yield "loop", loop["body"]


def runs_of(ordered: Sequence[GraphStep]) -> list[RunOfSteps]:
    """Return steps with those that repeat as they are put together: the longest stretch first found wins.

    So twelve equal layers are one run with count 12.
    """
    found: list[RunOfSteps] = []
    at = 0
    while at < len(ordered):
        width, count = 1, 1
        for wide in range(1, min(_LONGEST_RUN, (len(ordered) - at) // 2) + 1):
            times = 1
            while list(ordered[at + times * wide : at + (times + 1) * wide]) == list(ordered[at : at + wide]):
                times += 1
            if times > 1 and times * wide > count * width:
                width, count = wide, times
        if count == 1 and found and found[-1].count == 1:
            found[-1] = RunOfSteps(1, (*found[-1].shown, ordered[at]))
        else:
            found.append(RunOfSteps(count, tuple(ordered[at : at + width])))
        at += width * count
    return found


def _facts(
    session: Session, bundle: LibraryRow, reported: Sequence[Mapping[str, Any]]
) -> dict[str, PartFacts]:
    listed = json.loads(libraries.manifest_bytes(session, bundle))["libraries"]
    rows = {digest: libraries.get(session, one["name"], one["version"]) for digest, one in listed.items()}
    ids = [row.id for row in rows.values()]
    rates, found = predicted_gflops(session, ids), speed_ups(session, ids)
    secs = {
        part["digest"]: float(part["flops_at_most"]) / (1e9 * rates[rows[part["digest"]].id])
        for part in reported
        if rows[part["digest"]].id in rates
    }
    total = sum(secs.values())
    return {
        part["digest"]: PartFacts(
            str(part["name"]),
            f"{part['kind']}: {part['operator']}",
            rows[part["digest"]],
            int(part["calls"] or 0),
            rows[part["digest"]].num_micro_kernels,
            secs[part["digest"]] / total if part["digest"] in secs and total > 0 else None,
            found.get(rows[part["digest"]].id),
        )
        for part in reported
    }
