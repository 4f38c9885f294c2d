"""Python that runs as pasted: pulls a library, makes inputs of the right shapes, calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.target.kinds import kind_of_target
from dietcode.workload.binding import BindingPlan
from dietcode.workload.quotient import parse_dim

_USUAL = 64  # of a wide range: inputs stay small
_TAKEN = frozenset({"np", "torch", "dietcode", "lib", "rng", "print"})  # names of the snippet itself


@dataclass(frozen=True)
class Variable:
    """A shape variable, and the value that an example of a call has.

    Attributes
    ----------
    values : tuple of int or None
        All allowed values; None for a range.
    by_name : bool
        Whether a call passes it, since no tensor's shape determines it.
    """

    name: str
    min: int
    max: int
    values: tuple[int, ...] | None
    value: int
    by_name: bool


def variables_of(manifest: Mapping[str, Any], chosen: Mapping[str, str]) -> list[Variable]:
    """The shape variables of a library, with what was chosen; what is not allowed becomes what is near it.

    Parameters
    ----------
    chosen : mapping of str to str
        Values by name, as a form sends them.
    """
    keywords = BindingPlan.from_json(manifest["binding"]).keywords
    found = []
    for name in manifest["variable_order"]:
        facts = manifest["variables"][name]
        values = None if facts["values"] is None else tuple(sorted(facts["values"]))
        value = _near(chosen.get(name, ""), facts["min"], facts["max"], values)
        found.append(Variable(name, facts["min"], facts["max"], values, value, name in keywords))
    return found


def snippet(manifest: Mapping[str, Any], variables: list[Variable], ref: str, server: str) -> str:
    """The program.

    Parameters
    ----------
    ref : str
        ``NAME@VERSION``.
    server : str
        Its URL.
    """
    device = kind_of_target(manifest["target"]).torch_device
    with_torch = device is not None or manifest["output"]["dtype"] == "bfloat16"  # NumPy has none
    values = {one.name: one.value for one in variables}
    extents = {k: int(parse_dim(v, k).evaluate(values)) for k, v in manifest["dims"].items()}
    lines = ["import torch" if with_torch else "import numpy as np", "", "import dietcode", ""]
    lines.append(f'lib = dietcode.pull("{ref}", server="{server}")')
    if not with_torch:
        lines.append("rng = np.random.default_rng()")
    arguments, packing = [], []
    for name in manifest["argument_order"]:
        given, indices = _local(name), manifest["inputs"][name]["dims"]
        shape = _shape(extents[index] for index in indices)
        comment = ", ".join(str(manifest["dims"][index]) for index in indices)
        dtype = manifest["inputs"][name]["dtype"]
        lines.append(f"{given} = {_random(shape, dtype, with_torch, device)}  # [{comment}]")
        if name in manifest["packed"]:
            packing.append(f"{given} = lib.pack({name}={given})  # once, for all calls")
        arguments.append(f"{name}={given}")
    arguments += [f"{one.name}={one.value}" for one in variables if one.by_name]
    result = _local(manifest["output"]["name"])
    at = ", ".join(f"{name} = {value}" for name, value in values.items())
    lines += [*packing, "", f"{result} = lib({', '.join(arguments)})  # {at}"]
    lines.append(
        f"print({'tuple(' + result + '.shape)' if with_torch else result + '.shape'}, {result}.dtype)"
    )
    return "\n".join(lines) + "\n"


def _local(name: str) -> str:
    """The variable of a tensor; one of the snippet's own names gets an underscore."""
    return f"{name}_" if name in _TAKEN else name


def _shape(extents: Any) -> str:
    sizes = [str(extent) for extent in extents]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _random(shape: str, dtype: str, with_torch: bool, device: str | None) -> str:
    if not with_torch:
        return f'rng.standard_normal({shape}, dtype="{dtype}")'
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    where = "" if device is None else f', device="{device}"'
    return f"torch.randn({shape}{kind}{where})"


def _near(given: str, low: int, high: int, values: tuple[int, ...] | None) -> int:
    """Return the given value or the nearest allowed one; by default one in the middle, or a small one."""
    wanted = int(given) if given.isdecimal() and len(given) < 12 else min((low + high) // 2, max(low, _USUAL))
    if values is None:
        return min(max(wanted, low), high)
    return min(values, key=lambda value: (abs(value - wanted), value))
