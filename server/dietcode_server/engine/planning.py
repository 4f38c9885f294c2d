"""A stranger's graph, taken apart in a process of its own, with bounds on its memory and time.

``python -m dietcode_server.engine.planning`` reads a graph and the fields of its parts' specs as JSON, and
writes a `dietcode.models.planning.ModelPlan`, or why there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from dietcode.confinement import confine, kept_environment
from dietcode.errors import DietCodeError, ModelError, TuningError
from dietcode.lean import python_command, without_torch
from dietcode.lifeline import die_with_parent
from dietcode.models.planning import ModelPlan

PLAN_SECS = 300.0
_MEMORY_BYTES = 4 << 30


def plan_apart(graph: Mapping[str, Any], fields: Mapping[str, Any]) -> ModelPlan:
    """Return the plan of a graph that was read before.

    Parameters
    ----------
    graph : mapping
        As `dietcode.graph.graph.Graph.to_json` gives it, or `dietcode.graph.recursive_model` or
        `dietcode.graph.program_model`.
    fields : mapping
        Target, budget and objective of each part, as a spec has them.

    Raises
    ------
    ModelError
        The graph cannot be compiled.
    TuningError
        It took too much memory or time.
    """
    try:
        done = subprocess.run(
            python_command(__name__),
            input=json.dumps({"parent_pid": os.getpid(), "graph": graph, "fields": fields}).encode(),
            env=without_torch(kept_environment(os.environ)),
            capture_output=True,
            timeout=PLAN_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TuningError(
            f"the graph is not taken apart after {PLAN_SECS:.0f} s; submit a smaller one"
        ) from None
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1][:200]
        raise TuningError(f"the graph cannot be taken apart: {last or f'exit status {done.returncode}'}")
    answer = json.loads(done.stdout)
    if "refusal" in answer:
        raise ModelError(answer["refusal"])
    return ModelPlan.from_json(answer["plan"])


def _plan(content: Mapping[str, Any], fields: Mapping[str, Any]) -> ModelPlan:
    """Take a graph apart, or a recursion or a program, whose steps loading would not refuse."""
    from dietcode.graph.model_request import read_content
    from dietcode.graph.program_model import ProgramModel
    from dietcode.graph.recursive_model import RecursiveModel
    from dietcode.models.planning import plan_graph
    from dietcode.programs.planning import plan_program
    from dietcode.recursion.trials import plan_by_counts, plans_of
    from dietcode.runtime.programs.form import check_form
    from dietcode.runtime.programs.plan import read_program

    found = read_content(content)
    if isinstance(found, ProgramModel):
        check_form(found)
        plan = plan_program(found, fields)
        read_program(plan.description)
        return plan
    if not isinstance(found, RecursiveModel):
        return plan_graph(found, fields)
    return plan_by_counts(plans_of(found, fields))


def main() -> None:
    """Answer one question."""
    asked = json.load(sys.stdin)
    die_with_parent(asked["parent_pid"])
    confine(_MEMORY_BYTES, starts_processes=False)
    try:
        answer: dict[str, Any] = {"plan": _plan(asked["graph"], asked["fields"]).to_json()}
    except DietCodeError as error:
        answer = {"refusal": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
