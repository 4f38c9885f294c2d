"""What a program changes in place is refused: an importer that leaves it out computes something else."""

from __future__ import annotations

import operator
from typing import Any

from dietcode.errors import ModelError
from dietcode.models.sources import at, source_of

_MOST_NAMED = 20


def refuse_mutations(written: Any, functional: Any) -> None:
    """Refuse a program that changes parameters, buffers or inputs in place, with the lines that do.

    Parameters
    ----------
    written : torch.export.ExportedProgram
        As it was exported: its nodes may be those that change something.
    functional : torch.export.ExportedProgram
        The same after a decomposition, whose signature says what changes.

    Raises
    ------
    ModelError
        Names what changes, and the line of the model's source that does it first.
    """
    signature = functional.graph_signature
    kinds = {
        "parameter": "parameters_to_mutate",
        "buffer": "buffers_to_mutate",
        "input": "user_inputs_to_mutate",
    }
    changed = {
        new: (kind, name) for kind, key in kinds.items() for new, name in getattr(signature, key, {}).items()
    }
    for _, name in changed.values():
        if name.rpartition(".")[2] == "num_batches_tracked":
            raise ModelError(f"{name}: of a model in training mode; call model.eval() before the export")
    if not changed:
        return
    nodes = {node.name: node for node in functional.graph.nodes}
    lines = _changing_lines(written)
    named = {
        f"{kind} {name}": lines.get(name) or _line_of_value(nodes.get(new))
        for new, (kind, name) in changed.items()
    }
    listed = ", ".join(name + at(line) for name, line in sorted(named.items())[:_MOST_NAMED])
    raise ModelError(
        f"the model changes {listed} in place, which a compiled model cannot; return the new value as an "
        "output, and give it as an input of the next call"
    )


def _changing_lines(program: Any) -> dict[str, str]:
    """Return the line that changes each weight or input first, by its name, where a node in place has one."""
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    roots: dict[str, str] = {}  # what a node is, or is a view of
    lines: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            roots[node.name] = weights.get(node.name, node.name)
        elif node.target is operator.getitem and getattr(node.args[0], "name", "") in roots:
            roots[node.name] = roots[node.args[0].name]
        for argument, given in _aliased(node):
            root = roots.get(getattr(given, "name", ""))
            if root is None:
                continue
            roots[node.name] = root
            if argument.alias_info.is_write and (line := source_of(node)):
                lines.setdefault(root, line)
    return lines


def _aliased(node: Any) -> list[tuple[Any, Any]]:
    """Return the arguments of a node that its result shares memory with, each with what is given for it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    pairs = zip(schema.arguments, node.args, strict=False)
    return [(one, given) for one, given in pairs if one.alias_info is not None]


def _line_of_value(node: Any) -> str:
    """Return the line that computes a value, or the nearest line before it that is known; '' without one."""
    seen: set[Any] = set()
    waiting = [node] if node is not None else []
    while waiting:
        one = waiting.pop(0)
        if line := source_of(one):
            return line
        seen.add(one)
        waiting += [before for before in one.all_input_nodes if before not in seen]
    return ""
