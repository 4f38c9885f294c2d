"""The fields of a spec: types, bounds and defaults from its JSON schema, meanings from docstrings."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

from dietcode.workload.spec import Spec
from reference.markdown import code, prose, table

_ENTRY = re.compile(r"^([a-z0-9_, ]+) : .+\n((?:    .*\n?)+)", re.MULTILINE)
_TYPES = {
    "array": "list",
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "object": "mapping",
    "string": "text",
}
_BOUNDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
}


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a spec."""
    return Spec.model_json_schema()


def _model(name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema() if name == "Spec" else schema()["$defs"][name]
    return found


def fields(name: str) -> str:
    """A table of one model: field, type, default, meaning.

    Raises
    ------
    ValueError
        Its docstring leaves a field out.
    """
    model = _model(name)
    meanings = _meanings(model["description"])
    if missing := set(model["properties"]) - set(meanings):
        raise ValueError(f"the docstring of {name} says nothing of {', '.join(sorted(missing))}")
    required = model.get("required", ())
    rows = [
        (code(field), _type(facts), "required" if field in required else _default(facts), meanings[field])
        for field, facts in model["properties"].items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _meanings(docstring: str) -> dict[str, str]:
    """The entries of a numpydoc ``Parameters`` section."""
    _, _, section = docstring.partition("Parameters\n----------\n")
    return {
        name.strip(): prose(about)
        for names, about in _ENTRY.findall(section + "\n")
        for name in names.split(",")
    }


def _type(facts: dict[str, Any]) -> str:
    if "anyOf" in facts or "oneOf" in facts:
        choices = [one for one in facts.get("anyOf", facts.get("oneOf")) if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(_type(one) for one in choices))
    if "$ref" in facts:
        return _reference(facts["$ref"])
    if "const" in facts:
        return code(facts["const"])
    if "enum" in facts:
        return " or ".join(code(one) for one in facts["enum"])
    if "items" in facts:
        word = f"list of {_type(facts['items'])}"
    elif "prefixItems" in facts:
        return f"list of {len(facts['prefixItems'])} {_type(facts['prefixItems'][0])}s"
    elif isinstance(facts.get("additionalProperties"), dict):
        word = f"mapping of names to {_type(facts['additionalProperties'])}"
    else:
        word = _TYPES[facts["type"]]
    bounds = [words.format(_number(facts[key])) for key, words in _BOUNDS.items() if key in facts]
    return f"{word}, {' '.join(bounds)}" if bounds else word


def _reference(ref: str) -> str:
    """A model by its heading on the page."""
    name = ref.rpartition("/")[2]
    return f"[{_TITLES[name]}]({_PAGES.get(name, '')}#{_TITLES[name].replace(' ', '-')})"


def _default(facts: dict[str, Any]) -> str:
    default = facts.get("default")
    if default is None:
        return "none"
    if isinstance(default, dict):
        given = [f"{name}: {json.dumps(value)}" for name, value in default.items() if value is not None]
        return code(", ".join(given).replace('"', ""))
    return code(json.dumps(default).replace('"', ""))


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Headings of docs/spec.md, by the model.
_TITLES = {
    "OpSpec": "operator",
    "Conv2d": "convolutions",
    "Conv1d": "along one axis",
    "EpilogueStep": "epilogue steps",
    "BlockSpec": "the format",
    "TensorSpec": "tensors",
    "OutputSpec": "output",
    "RangeVariable": "ranges",
    "ValuesVariable": "listed values",
    "JointInstance": "instances",
    "TargetSpec": "target",
    "Budget": "budget",
    "ObjectiveSpec": "objective",
}
# Models whose heading is on another page.
_PAGES = {"BlockSpec": "blocks.md"}
PARTS: dict[str, Callable[[], str]] = {name: functools.partial(fields, name) for name in ("Spec", *_TITLES)}
