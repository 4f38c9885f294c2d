"""From text or plain data to a valid `Spec`, or one `SpecError` that names the field."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dietcode.errors import LibraryError, SpecError
from dietcode.workload import loader
from dietcode.workload.block import BlockSpec
from dietcode.workload.histogram import inline_histograms
from dietcode.workload.positions import in_file
from dietcode.workload.spec import (
    Budget,
    Conv1d,
    Conv2d,
    ObjectiveSpec,
    OpSpec,
    OutputSpec,
    RangeVariable,
    Spec,
    TensorSpec,
    ValuesVariable,
)
from dietcode.workload.spec_checks import disagreements
from dietcode.workload.spec_fields import SpecFields
from dietcode.workload.text import clip, field_path, one_line, suggest

_SECTIONS: dict[str, type[BaseModel]] = {
    "op": OpSpec,
    "output": OutputSpec,
    "budget": Budget,
    "objective": ObjectiveSpec,
}
_KINDS: dict[tuple[int | str, ...], type[BaseModel]] = {
    ("op", "conv2d"): Conv2d,
    ("op", "conv1d"): Conv1d,
    ("op", "block"): BlockSpec,
}
_MOST_ERRORS = 100  # nobody reads more, and finding out what was meant takes time for each
_VARIABLES: dict[str, type[BaseModel]] = {"range": RangeVariable, "values": ValuesVariable}

# Allowed values by the type of pydantic's error; {…} are entries of its context.
_ALLOWED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_type": "a mapping",
    "string_type": "text; quote what YAML reads as a number or a boolean",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entries",
    "tuple_type": "a list",
    "union_tag_not_found": "a mapping with min and max, or with values",
}


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """Read a workload spec from a YAML or JSON file; weights may be in a histogram file beside it.

    Parameters
    ----------
    path : str or path
        A file of at most 1 MiB.

    Raises
    ------
    RequestError
        The file is missing or cannot be read.
    SpecError
        Its content is refused; names file, line and field, what was given and what is allowed.
    """
    raw = loader.read_bytes(path)
    source = one_line(str(path), 120)
    try:
        data = loader.parse_data(raw, source)
        return spec_from_data(inline_histograms(data, Path(path).parent))
    except SpecError as error:
        raise in_file(raw, source, error) from None


def parse_spec(text: str | bytes, source: str = "<spec>") -> Spec:
    """Parse a workload spec in YAML or JSON.

    Parameters
    ----------
    text : str or bytes
        At most 1 MiB of UTF-8.
    source : str
        Named by errors that belong to no field.

    Raises
    ------
    SpecError
        Names the field, what was given and what is allowed, in one line.
    """
    return spec_from_data(loader.parse_data(text, source))


def spec_from_data(data: object) -> Spec:
    """Make a spec of plain data, as from JSON.

    Raises
    ------
    SpecError
        As for `parse_spec`.
    """
    found = check_data(data)
    if isinstance(found, Spec):
        return found
    raise found[0]


def check_data(data: object) -> Spec | list[SpecError]:
    """Parse plain data; return the spec, or all errors that can be found at once.

    The first of the errors is the one that `spec_from_data` raises. Fields are compared with each other only
    where each is right by itself.
    """
    try:
        if not isinstance(data, dict):
            raise SpecError("", f"given {clip(data)}; allowed: a mapping of fields")
        loader.check_plain(data)
    except SpecError as error:
        return [error]
    try:
        return Spec.model_validate(data)
    except ValidationError as error:
        return _errors(error)
    except SpecError as error:
        others = _errors_of_fields(data)
        found = [error, *(others or disagreements(SpecFields.model_validate(data)))]
    return list({(one.field, one.problem): one for one in found}.values())


def _errors_of_fields(data: dict[str, Any]) -> list[SpecError]:
    """Return the errors of fields by themselves, where one of them stopped the check of the others.

    Each field that did so is left out, and the rest is checked again.
    """
    stopped: dict[str, SpecError] = {}
    while True:
        rest = {name: value for name, value in data.items() if name not in stopped}
        try:
            SpecFields.model_validate(rest)
            return list(stopped.values())
        except ValidationError as error:
            others = [one for one in _errors(error) if one.field not in stopped]
            return [*stopped.values(), *others]
        except SpecError as error:
            name = error.field.partition(".")[0]
            if name not in rest:
                return [*stopped.values(), error]
            stopped[name] = error


def spec_of(manifest: Mapping[str, Any]) -> Spec:
    """Return the spec in a library's manifest, its tensors and shape variables in their original order.

    Raises
    ------
    LibraryError
        The manifest holds no spec.
    """
    try:
        data = dict(manifest["workload"])
        # Keys of JSON are sorted; the order of operands and variables is not.
        data["tensors"] = {name: data["tensors"][name] for name in manifest["tensor_order"]}
        data["shape_vars"] = {name: data["shape_vars"][name] for name in manifest["variable_order"]}
        return spec_from_data(data)
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        raise LibraryError(f"the manifest holds no workload: {error}; tune again") from error


def _errors(error: ValidationError) -> list[SpecError]:
    """Return the first errors, unknown fields before others: a misspelt field is missing, too."""
    details: list[Any] = list(error.errors(include_url=False, include_context=True))
    details.sort(key=lambda detail: detail["type"] != "extra_forbidden")
    found: dict[str, Any] = {}
    for detail in details:  # each form of a union has errors of its own about a field
        if len(found) == _MOST_ERRORS:
            break
        found.setdefault(field_path(_user_path(detail["loc"])), detail)
    return [SpecError(path, _problem(detail)) for path, detail in found.items()]


def _user_path(loc: Sequence[int | str]) -> list[int | str]:
    """Drop from pydantic's location what the user did not write."""
    parts = list(loc)
    if len(parts) > 2 and (parts[0] == "shape_vars" or (parts[0] == "instances" and parts[2] == "bindings")):
        del parts[2]
    if parts[:1] == ["dims"]:
        del parts[2:]
    return [part for part in parts if part != "[key]"]


def _problem(detail: Any) -> str:
    kind, loc = str(detail["type"]), detail["loc"]
    context = {name: _limit(value) for name, value in detail.get("ctx", {}).items()}
    if kind == "extra_forbidden":
        allowed = _fields_at(loc[:-1])
        return f"unknown field; allowed: {', '.join(allowed)}{suggest(loc[-1], allowed)}"
    if kind == "missing":
        return f"missing; required: {', '.join(_fields_at(loc[:-1], required=True))}"
    if kind == "value_error":
        return one_line(str(detail["ctx"]["error"]), 300)
    if loc and loc[-1] == "[key]":
        return f"given the key {clip(detail['input'])}; allowed: a name; quote what YAML reads as a number"
    allowed_text = _ALLOWED.get(kind, "").format(**context) or one_line(str(detail["msg"]))
    return f"given {clip(detail['input'])}; allowed: {allowed_text}"


def _limit(value: object) -> object:
    return "2**31" if value == 2**31 else value


def _fields_at(parent: Sequence[int | str], required: bool = False) -> list[str]:
    """Names of the fields allowed, or required, at a location of pydantic's."""
    model: type[BaseModel] | None = None
    if not parent:
        model = Spec
    elif parent[0] == "tensors":
        model = TensorSpec
    elif tuple(parent) in _KINDS:
        model = _KINDS[tuple(parent)]
    elif parent[0] == "shape_vars":
        model = _VARIABLES.get(str(parent[-1]))
    else:
        model = _SECTIONS.get(str(parent[0]))
    if model is None:
        return []
    fields = [name for name, field in model.model_fields.items() if field.is_required() or not required]
    return sorted(fields, key="weights".__eq__)  # inherited, so pydantic lists it first
