"""A spec as a person writes it."""

from __future__ import annotations

import json
from typing import Any

import yaml

_MAX_YAML_CHARS = 1 << 15  # more is written as JSON: YAML is slow to write


def spec_text(data: dict[str, Any]) -> str:
    """The text of a spec, in YAML, without what is the default anyway; a long one in JSON.

    Parameters
    ----------
    data : dict
        As `dietcode.workload.spec.Spec.to_json` gives it.
    """
    plain = _brief(data)
    as_json = json.dumps(plain, ensure_ascii=False)
    if len(as_json) > _MAX_YAML_CHARS:
        return as_json + "\n"
    options: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "allow_unicode": True}
    return str(yaml.safe_dump(plain, width=100, **options))


def _brief(data: Any) -> Any:
    """Return the data without fields that are off, empty or not given."""
    if not isinstance(data, dict):
        return data
    return {
        key: _brief(value) for key, value in data.items() if value is not None and value not in (False, [])
    }
