"""What the header of records says of a device, and its row: plain data, which needs no database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dietcode.measure.formats import format_of_target

if TYPE_CHECKING:
    from dietcode_server.store.tables import DeviceRow

DeviceIdentity: TypeAlias = tuple[str, str, dict[str, Any]]
"""Id, name and target of a device."""
_SYNTHETIC = "synthetic"


def device_row(device: Mapping[str, Any]) -> DeviceIdentity:
    """Id, name and target of a device by the header of its records: its row has all that the header says."""
    facts = {name: device[name] for name in _kept_facts(device["target"]) if name in device}
    return str(device["id"]), str(device["name"]), {**device["target"], **facts}


def header_of(row: DeviceRow) -> dict[str, Any]:
    """The device of a header of records; the inverse of `device_row`."""
    target = target_of(row.target)
    facts = {name: value for name, value in row.target.items() if name not in target}
    # Synthetic ones are never stored.
    facts |= {name: False for name in format_of_target(target).header_facts if name == _SYNTHETIC}
    return {"id": row.id, "name": row.name, "target": target, **facts}


def target_of(of_row: Mapping[str, Any]) -> dict[str, Any]:
    """The target of a device alone, without the other facts that its row has beside it."""
    kept = _kept_facts(of_row)
    return {name: value for name, value in of_row.items() if name not in kept}


def _kept_facts(target: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in format_of_target(target).header_facts if name != _SYNTHETIC)
