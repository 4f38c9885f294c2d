"""What the nodes of a Ray cluster announce as their resources, and what a driver sees of it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from typing import TypeVar

from dietcode.errors import RequestError
from dietcode.measure.gpu import Gpu
from dietcode.target.cpu import Host

AUTH_MODE = "RAY_AUTH_MODE"
_HOST, _GPU = "dietcode-measures:", "dietcode-measures-gpu:"
Described = TypeVar("Described", Host, Gpu)


def place_of(device: Host | Gpu) -> str:
    """The resource of which a machine that measures has one: its slot, or that of its GPU.

    The name holds the description of the device, so that whoever sees the cluster's resources can resolve a
    target for it without disturbing what it measures.
    """
    text = json.dumps(device.to_json(), sort_keys=True, separators=(",", ":"))
    prefix = _HOST if isinstance(device, Host) else _GPU
    return prefix + base64.urlsafe_b64encode(text.encode()).decode()


def host_of(place: str) -> Host | None:
    """The machine that a resource describes; None for any other resource."""
    return _described(place, _HOST, Host.from_json)


def gpu_of(place: str) -> Gpu | None:
    """The GPU that a resource describes; None for any other resource."""
    return _described(place, _GPU, Gpu.from_json)


def _described(place: str, prefix: str, read: Callable[[dict[str, object]], Described]) -> Described | None:
    if not place.startswith(prefix):
        return None
    try:
        return read(json.loads(base64.urlsafe_b64decode(place.removeprefix(prefix))))
    except (ValueError, TypeError):  # a node of another version
        return None


class RayNodes:
    """The nodes of the cluster that this process is connected to.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` of its head.
    wait_secs : float
        How long a machine that left may take to come back, or another like it to join.
    """

    def __init__(self, address: str, wait_secs: float) -> None:
        self.address, self.wait_secs = address, wait_secs

    def resources(self) -> set[str]:
        """Names of those that some node has which is alive."""
        import ray

        return {name for node in ray.nodes() if node["Alive"] for name in node["Resources"]}

    def places(self) -> dict[str, Host]:
        """Machines that measure, by the resource that is their slot; of this machine's instruction set."""
        own = os.uname().machine
        found = {name: host_of(name) for name in self.resources()}
        return {name: host for name, host in found.items() if host is not None and host.machine == own}

    def gpus(self) -> dict[str, Gpu]:
        """GPUs that are measured on, by the resource that is their slot."""
        found = {name: gpu_of(name) for name in self.resources()}
        return {name: gpu for name, gpu in found.items() if gpu is not None and gpu.target is not None}

    def num_builders(self) -> int:
        """Machines that take builds."""
        import ray

        return sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())


def need_token() -> None:
    """Refuse a cluster that anybody who reaches it can run code on.

    Raises
    ------
    RequestError
        Token authentication is not on.
    """
    if os.environ.get(AUTH_MODE, "").lower() != "token":
        given = os.environ.get(AUTH_MODE, "nothing")
        raise RequestError(
            f"{AUTH_MODE}: given {given!r}; a Ray cluster without authentication "
            f"runs anybody's code: set {AUTH_MODE}=token on every machine, with one token (docs/engines.md)"
        )
