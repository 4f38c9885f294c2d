"""Examples of an export that are one tensor, which PyTorch takes for one input wherever it occurs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.errors import ModelError
from dietcode.models.importing.dimensions import has_own_examples


def with_own_examples(arguments: Any) -> Any:
    """Return a tree of arguments in which each tensor is an object of its own, and no view.

    PyTorch knows tensors by their identity: of two inputs with one example it reads the last, an input whose
    example is a parameter in place of that, and a view gives what it is a view of sizes that nobody knows.
    """
    import torch

    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, arguments)


def refuse_shared_examples(program: Any, named: Mapping[str, str]) -> None:
    """Refuse a saved program that PyTorch's own export made of one tensor for several inputs.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As it was saved: with its examples.
    named : mapping of str to str
        The name of each input as it is shown, by that of its node.

    Raises
    ------
    ModelError
    """
    import torch

    if has_own_examples(program) or program.example_inputs is None:
        return
    if all(node.op != "call_function" for node in program.graph.nodes):
        return  # `export` has no node to note it with, and nothing is computed
    read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    signature = program.graph_signature
    leaves = torch.utils._pytree.tree_leaves(program.example_inputs)
    examples = {
        name: leaf
        for name, leaf in zip(signature.user_inputs, leaves, strict=False)
        if isinstance(leaf, torch.Tensor)
    }
    unread = {
        key: value
        for key, value in {**program.state_dict, **program.constants}.items()
        if isinstance(value, torch.Tensor) and not {one.arg.name for one in _inputs_of(signature, key)} & read
    }
    remedy = (
        "PyTorch's export takes them for one; export again by dietcode.export, or with a clone() for each"
    )
    first: dict[int, str] = {}
    for name, leaf in examples.items():
        other = first.setdefault(id(leaf), name)
        if other != name and read & {name, other}:
            raise ModelError(f"{named[other]}, {named[name]}: the example of both is one tensor; {remedy}")
        for key, value in unread.items():
            if name in read and value.dtype == leaf.dtype and torch.equal(value, leaf):
                raise ModelError(f"{named[name]}: its example is {key} of the model, unread; {remedy}")


def _inputs_of(signature: Any, key: str) -> list[Any]:
    return [one for one in signature.input_specs if one.target == key]
