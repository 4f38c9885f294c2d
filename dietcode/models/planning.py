"""What has to be tuned for a model, and what calls it: plain data, which may travel between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dietcode.errors import ModelError
from dietcode.graph.graph import Graph
from dietcode.graph.signature import called_inputs, called_outputs
from dietcode.models.budgets import PartBudget
from dietcode.models.grouping import make_units
from dietcode.models.kernel_call import KernelCall
from dietcode.models.lifetimes import all_steps
from dietcode.models.lowering import Lowered, lower
from dietcode.models.rewriting import rewrite
from dietcode.runtime.models.executable import read_executable
from dietcode.runtime.models.guard import guard_of
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec


@dataclass(frozen=True)
class PlannedPart:
    """A part of a model: a spec, and what a report says of it.

    Attributes
    ----------
    digest : str
        Of what is computed, without name, target, budget and objective.
    kind : str
        The operator in one word.
    calls : int
        How often the model calls it.
    flops_at_most : int
        Of all these calls with the largest shapes.
    fields : dict
        The whole spec as plain data.
    """

    digest: str
    kind: str
    calls: int
    flops_at_most: int
    fields: dict[str, Any]

    @property
    def spec(self) -> Spec:
        """The spec, read anew."""
        return spec_from_data(self.fields)

    @property
    def name(self) -> str:
        """The name of its spec."""
        return str(self.fields["name"])

    def with_budget(self, budget: PartBudget) -> PlannedPart:
        """Return the part with another budget."""
        own = {"trials": budget.trials, "seconds": budget.seconds}
        return replace(self, fields=self.fields | {"budget": own})


@dataclass(frozen=True)
class ModelPlan:
    """A model that is taken apart.

    Attributes
    ----------
    description : dict
        The executable as plain data, see `dietcode.runtime.models.executable`.
    parts : tuple of PlannedPart
    facts : dict
        What a report says of the whole.
    """

    description: dict[str, Any]
    parts: tuple[PlannedPart, ...]
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the model."""
        return str(self.description["name"])

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelPlan:
        """Return what `to_json` gave."""
        parts = tuple(PlannedPart(**part) for part in data["parts"])
        return cls(data["description"], parts, data["facts"])


def plan_graph(graph: Graph, fields: Mapping[str, Any]) -> ModelPlan:
    """Take a graph apart.

    Parameters
    ----------
    fields : mapping
        Target, budget and objective of each part, as a spec has them.

    Raises
    ------
    ModelError
        The graph cannot be compiled: what loading would refuse is refused here.
    """
    graph = rewrite(graph)
    lowered = lower(graph, make_units(graph))
    executable = read_executable(lowered.description)
    try:
        guard_of(executable)
    except ValueError as error:
        raise ModelError(f"{executable.name}: {error}") from error
    largest = {name: high for name, (_, high) in graph.ranges.items()}
    parts = planned_parts(lowered.specs, lowered.calls, largest, fields)
    return ModelPlan(lowered.description, parts, _facts(graph, lowered))


def planned_parts(
    specs: Mapping[str, Mapping[str, Any]],
    calls_of: Mapping[str, Sequence[KernelCall]],
    largest: Mapping[str, int],
    fields: Mapping[str, Any],
) -> tuple[PlannedPart, ...]:
    """Return the parts to tune.

    Parameters
    ----------
    specs : mapping of str to mapping
        The spec of each library, without name, target and budget, by its digest.
    calls_of : mapping of str to sequence of KernelCall
        Those of each library.
    largest : mapping of str to int
        The largest value of each dimension.
    fields : mapping
        Target, budget and objective of each part, as a spec has them.
    """
    parts = []
    for digest, spec in specs.items():
        calls = calls_of[digest]
        kind = calls[0].kind
        whole = spec_from_data({"name": f"{kind}-{digest[:12]}", **spec, **fields}).to_json()
        flops = sum((call.num_flops.evaluate(largest) for call in calls), 0)
        parts.append(PlannedPart(digest, kind, len(calls), flops, whole))
    return tuple(parts)


def _facts(graph: Graph, lowered: Lowered) -> dict[str, Any]:
    steps = list(all_steps(lowered.description["steps"]))
    host: dict[str, int] = {}
    for step in steps:
        if "host" in step and not step.get("view"):
            host[step["host"]] = host.get(step["host"], 0) + 1
    types = [graph.weights[name] for name in lowered.description["weights"]]
    return {
        "name": graph.name,
        "dimensions": lowered.description["dimensions"],
        "inputs": {n: str(type_) for n, type_ in called_inputs(graph.signature, graph.inputs).items()},
        "outputs": list(map(str, called_outputs(graph.signature, graph.output_types))),
        "num_operators": graph.num_nodes,
        "num_weights": len(types),
        "weight_bytes": sum(one.num_elements.constant * np.dtype(one.dtype).itemsize for one in types),
        "workspace_bytes": lowered.description["storages"]["max_bytes"],
        "num_calls": sum("kernel" in step for step in steps),
        "host_operators": host,
    }
