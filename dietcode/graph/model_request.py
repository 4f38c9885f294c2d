"""What is asked of a service: a model, a recursion or a program as data, and how parts are tuned."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from dietcode.errors import ModelError
from dietcode.graph.fields import read_mapping
from dietcode.graph.graph import Graph
from dietcode.graph.program_model import ProgramModel, read_program_model
from dietcode.graph.reading import read_graph
from dietcode.graph.recursive_model import RecursiveModel, read_recursive_model
from dietcode.workload.spec_fields import Budget, ObjectiveSpec
from dietcode.workload.target_spec import CPU_KIND, TargetSpec
from dietcode.workload.text import clip, field_path, one_line

TRIALS, SECONDS = 32, 60.0  # of each part
OBJECTIVE = {"binary_size": 0.02, "max_loss": 0.1}
Content: TypeAlias = Graph | RecursiveModel | ProgramModel
_KINDS = {Graph: "graph", RecursiveModel: "recursion", ProgramModel: "program"}
_FIELDS = (*_KINDS.values(), "target", "budget", "objective")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
Fields = TypeVar("Fields", bound=BaseModel)


@dataclass(frozen=True)
class ModelOrder:
    """What is asked of a model, without its graph.

    Attributes
    ----------
    name : str
        What its bundle is published as.
    workload : str
        ``sha256:<hex>`` of the graph, whatever its name.
    target : TargetSpec
        A CPU.
    budget : Budget
        Of each part.
    objective : ObjectiveSpec
    sizes : dict or None
        Of a recursion the largest structures, ``max_nodes`` and ``max_level``; of a program ``max_rows``.
    """

    name: str
    workload: str
    target: TargetSpec
    budget: Budget
    objective: ObjectiveSpec
    sizes: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `order_from_data`."""
        key = None if self.sizes is None else "program" if "max_rows" in self.sizes else "recursion"
        sizes = {} if key is None or self.sizes is None else {key: dict(self.sizes)}
        return {"name": self.name, "workload": self.workload, **sizes, **self.options()}

    def options(self) -> dict[str, Any]:
        """Return target, budget and objective as the spec of a part has them."""
        return {
            "target": self.target.to_json(),
            "budget": self.budget.model_dump(mode="json"),
            "objective": self.objective.model_dump(mode="json", exclude_defaults=True),
        }

    def digest(self, resolved_target: Mapping[str, Any]) -> str:
        """Return ``sha256:<hex>`` of all of it with its resolved target: equal ones are the same job."""
        return _digest({"job": "model", **self.to_json(), "target": dict(resolved_target)})


@dataclass(frozen=True)
class ModelRequest:
    """A model, a recursion or a program, and how its parts are tuned.

    Attributes
    ----------
    content : Graph, RecursiveModel or ProgramModel
    target : TargetSpec
        A CPU; by default that of the machine that tunes.
    budget : Budget
        Of each part.
    objective : ObjectiveSpec
    """

    content: Content
    target: TargetSpec
    budget: Budget
    objective: ObjectiveSpec

    @cached_property
    def order(self) -> ModelOrder:
        """The same without its graphs."""
        content = self.content
        sizes = None if isinstance(content, Graph) else content.sizes
        digest = workload_of_content(content)
        return ModelOrder(content.name, digest, self.target, self.budget, self.objective, sizes)

    @property
    def name(self) -> str:
        """What its bundle is published as."""
        return self.content.name

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `model_from_data`."""
        return {kind_of_content(self.content): self.content.to_json(), **self.order.options()}


def kind_of_content(content: Content) -> str:
    """Return the field of a request that has it: graph, recursion or program."""
    return _KINDS[type(content)]


def workload_of_content(content: Content) -> str:
    """Return ``sha256:<hex>`` of what is computed, whatever its name."""
    return _digest({name: value for name, value in content.to_json().items() if name != "name"})


def read_content(data: Mapping[str, Any]) -> Content:
    """Return the graph, the recursion or the program that was kept as plain data.

    Raises
    ------
    ModelError
        It is none of them.
    """
    if "form" in data:
        return read_program_model(data)
    return read_recursive_model(data) if "cell" in data else read_graph(data)


def model_from_data(data: Any) -> ModelRequest:
    """Return what `ModelRequest.to_json` wrote, or what anybody else did.

    Raises
    ------
    ModelError
        It is none; names the field, what was given and what is allowed.
    SpecError
        Its target is none.
    """
    data = read_mapping(data, "", _FIELDS)
    given = [kind for kind in _KINDS.values() if kind in data]
    if len(given) > 1:
        raise ModelError(f"{', '.join(given)}: all are given; allowed: one of them")
    content: Content
    if given == ["recursion"]:
        content = read_recursive_model(data["recursion"])
    elif given == ["program"]:
        content = read_program_model(data["program"])
    else:
        content = read_graph(data.get("graph"))
    if not _NAME.fullmatch(content.name):
        raise ModelError(
            f"name: given {clip(content.name)}; allowed: 1 to 64 of a-z, 0-9, '.', '_', '-', a letter or "
            "digit first"
        )
    return ModelRequest(content, *_options(data))


def order_from_data(data: Mapping[str, Any]) -> ModelOrder:
    """Return what `ModelOrder.to_json` wrote.

    Raises
    ------
    ModelError, SpecError
        It is none.
    """
    given = next((data[key] for key in ("recursion", "program") if data.get(key) is not None), None)
    sizes = None if given is None else dict(given)
    return ModelOrder(str(data.get("name")), str(data.get("workload")), *_options(data), sizes)


def _options(data: Mapping[str, Any]) -> tuple[TargetSpec, Budget, ObjectiveSpec]:
    plain = TargetSpec.from_plain(data.get("target", {"kind": CPU_KIND}))
    target = plain if isinstance(plain, TargetSpec) else _section("target", TargetSpec, plain)
    if target.kind != CPU_KIND:
        raise ModelError(
            f"target: given {clip(target.to_json())}; allowed for a model: {{kind: {CPU_KIND}}}, a CPU"
        )
    budget = _section("budget", Budget, data.get("budget", {}), trials=TRIALS, seconds=SECONDS)
    return target, budget, _section("objective", ObjectiveSpec, data.get("objective", OBJECTIVE))


def _section(name: str, kind: type[Fields], given: Any, **defaults: Any) -> Fields:
    if not isinstance(given, Mapping):
        raise ModelError(f"{name}: given {clip(given)}; allowed: a mapping of {', '.join(kind.model_fields)}")
    try:
        return kind.model_validate({**defaults, **given})
    except ValidationError as error:
        detail = error.errors(include_url=False, include_context=False)[0]
        where = field_path([name, *detail["loc"]])
        raise ModelError(f"{where}: given {clip(detail['input'])}; {one_line(detail['msg'])}") from None


def _digest(data: Mapping[str, Any]) -> str:
    """Return the digest of plain data whose numbers may be larger than canonical JSON has them."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
