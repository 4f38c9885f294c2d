"""A Ray cluster as an engine: builds go where a CPU is free, measurements to the machine with the device."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator

from dietcode.errors import TuningError
from dietcode.measure.child_calls import describe
from dietcode.measure.children import Children
from dietcode.measure.device_kinds import DEVICE_KINDS, device_kind_of
from dietcode.measure.engine import Device, OnWait, check_reachable
from dietcode.measure.ray_children import RayChildren
from dietcode.measure.ray_nodes import RayNodes, need_token
from dietcode.workload.target_spec import TargetSpec

WAIT_SECS = 120.0
_JOINING_SECS = 10.0
_POLL_SECS = 0.5


class RayCluster(RayNodes):
    """`dietcode.measure.engine.Engine` on a Ray cluster; this machine must be one of its nodes.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` of its head.
    wait_secs : float
        How long a machine that left may take to come back, or another like it to join.

    Raises
    ------
    RequestError
        Token authentication is off.
    TuningError
        The cluster cannot be reached or refuses the token.
    """

    def __init__(self, address: str, wait_secs: float = WAIT_SECS) -> None:
        need_token()
        check_reachable("the Ray cluster", address)
        super().__init__(address, wait_secs)
        _connect(address)

    def devices(self, on_error: Callable[[str], None]) -> list[Device]:
        """As `Engine.devices`: its machines and GPUs, as far as they can be built for here."""
        kinds = [kind for kind in DEVICE_KINDS.values() if kind.can_build]
        return [device for kind in kinds for device in kind.all_of(list(self.slots(kind).items()))]

    def resolve(self, spec: TargetSpec) -> Device:
        """Return the device of the cluster that a target names, or the only one that fits.

        A machine that is just joining is waited for, ten seconds at the most.

        Raises
        ------
        TargetError
            No machine measures, or several kinds fit and the spec names none.
        """
        kind, until = device_kind_of(spec), time.monotonic() + min(self.wait_secs, _JOINING_SECS)
        while not (found := self.slots(kind)) and time.monotonic() < until:
            time.sleep(_POLL_SECS)
        start = f"`dietcode ray-node --address {self.address} --measures`"
        return kind.choose(spec, list(found.items()), f"the Ray cluster at {self.address}", start)

    @contextlib.contextmanager
    def children(self, device: Device, on_wait: OnWait) -> Iterator[Children]:
        """One job at a time holds a machine's slot; it ends with the job, however that ends."""
        children = RayChildren(self, device, on_wait)
        try:
            yield children
        finally:
            children.close()

    def close(self) -> None:
        """Leave the cluster; it ends what this process still has there."""
        import ray

        ray.shutdown()


def _connect(address: str) -> None:
    # Ray reads it once: tries, a second each, until a wrong token is an error.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")
    import ray

    try:
        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        ray.shutdown()
        raise TuningError(
            f"the Ray cluster at {address} does not take this machine: {describe(error)}; is it a node "
            "(`dietcode ray-node`), with the cluster's token and version of Ray?"
        ) from error
