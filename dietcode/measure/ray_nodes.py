"""What the nodes of a Ray cluster announce as their resources, and how a driver reads it."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

from dietcode.errors import RequestError
from dietcode.measure.device_kinds import DeviceKind

AUTH_MODE = "RAY_AUTH_MODE"


def slot_of(kind: DeviceKind, described: Any) -> str:
    """Return the resource of which a machine that measures has one for each of its devices: their slots.

    The name holds the description of the device, so that whoever sees the cluster's resources can resolve a
    target for it without disturbing what it measures.
    """
    text = json.dumps(described.to_json(), sort_keys=True, separators=(",", ":"))
    return kind.prefix + base64.urlsafe_b64encode(text.encode()).decode()


def described_by(slot: str, kind: DeviceKind) -> Any:
    """Return the device of a kind that a resource describes; None for any other resource."""
    if not slot.startswith(kind.prefix):
        return None
    try:
        return kind.from_json(json.loads(base64.urlsafe_b64decode(slot.removeprefix(kind.prefix))))
    except (ValueError, TypeError):  # a node of another version
        return None


class RayNodes:
    """The nodes of the cluster that this process is connected to.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` of its head.
    wait_secs : float
        How long to wait for a machine that left, or for another like it.
    """

    def __init__(self, address: str, wait_secs: float) -> None:
        self.address, self.wait_secs = address, wait_secs

    def resources(self) -> set[str]:
        """Return the names of the resources of all nodes that are alive."""
        import ray

        return {name for node in ray.nodes() if node["Alive"] for name in node["Resources"]}

    def slots(self, kind: DeviceKind) -> dict[str, Any]:
        """Describe the devices of a kind that are measured on, by the resource that is their slot."""
        found = {name: described_by(name, kind) for name in sorted(self.resources())}
        return {name: one for name, one in found.items() if one is not None and kind.is_usable(one)}

    def num_builders(self) -> int:
        """Return how many machines take builds."""
        import ray

        return sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())


def need_token() -> None:
    """Refuse a cluster that anybody who reaches it can run code on.

    Raises
    ------
    RequestError
        Token authentication is off.
    """
    if os.environ.get(AUTH_MODE, "").lower() != "token":
        given = os.environ.get(AUTH_MODE, "nothing")
        raise RequestError(
            f"{AUTH_MODE}: given {given!r}; a Ray cluster without authentication "
            f"runs anybody's code: set {AUTH_MODE}=token on every machine, with one token (docs/engines.md)"
        )
