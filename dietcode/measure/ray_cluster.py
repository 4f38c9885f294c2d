"""A Ray cluster as an engine: builds go where a CPU is free, measurements to the machine with the device."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec

from dietcode.errors import RequestError, TargetError, TuningError
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.engine import Device, Say, check_reachable
from dietcode.measure.ray_node import AUTH_MODE, host_of
from dietcode.measure.runner import describe
from dietcode.target.cpu import Host, device_record, resolve_target
from dietcode.workload.spec import TargetSpec

WAIT_SECS = 120.0
_JOINING_SECS = 10.0
_POLL_SECS = 0.5


class RayCluster:
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
        Ray is not installed, or token authentication is off.
    TuningError
        The cluster cannot be reached or refuses the token.
    """

    def __init__(self, address: str, wait_secs: float = WAIT_SECS) -> None:
        need_ray()
        need_token()
        check_reachable("the Ray cluster", address)
        self.address, self.wait_secs = address, wait_secs
        _connect(address)

    def places(self) -> dict[str, Host]:
        """Machines that measure, by the resource that is their slot; of this machine's instruction set."""
        import ray

        own = os.uname().machine
        found = {name: host_of(name) for node in ray.nodes() if node["Alive"] for name in node["Resources"]}
        return {name: host for name, host in found.items() if host is not None and host.machine == own}

    def num_builders(self) -> int:
        """Machines that take builds."""
        import ray

        return sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())

    def devices(self) -> list[Device]:
        """One for each kind of machine that measures."""
        any_cpu = TargetSpec(kind="llvm")
        return [self._device(any_cpu, place, host) for place, host in sorted(self.places().items())]

    def _device(self, spec: TargetSpec, place: str, host: Host) -> Device:
        """What a target stands for on one of the machines."""
        target = resolve_target(spec, host)
        lacks = host.refusal(target)
        refusal = lacks and f"no machine of the Ray cluster can measure for it: {host.name} {lacks}"
        worker = CpuWorker(target.num_cores)
        return Device(target, device_record(target, host.name), worker, refusal, host, place)

    def resolve(self, spec: TargetSpec) -> Device:
        """The device of the cluster that a target names, or the only one that fits.

        A machine that is just joining is waited for, ten seconds at the most.

        Raises
        ------
        TargetError
            No machine measures, or several kinds fit and the spec names none.
        """
        found = []
        until = time.monotonic() + min(self.wait_secs, _JOINING_SECS)
        while not (places := self.places()) and time.monotonic() < until:
            time.sleep(_POLL_SECS)
        for place, host in sorted(places.items()):
            device = self._device(spec, place, host)
            target = device.target
            differs = (
                device.refusal is not None,
                host.mcpu != target.mcpu,
                host.num_cores != target.num_cores,
            )
            found.append((differs, device))
        if not found:
            raise TargetError(
                f"no machine of the Ray cluster at {self.address} measures; "
                f"start one there with `dietcode ray-node --address {self.address} --measures`"
            )
        least = min(differs for differs, _ in found)
        fitting = [device for differs, device in found if differs == least]
        if (
            len({str(device.record["id"]) for device in fitting}) > 1
            and spec.mcpu is None
            and spec.tag is None
        ):
            kinds = ", ".join(sorted({f"{d.target.mcpu} ({d.target.num_cores} cores)" for d in fitting}))
            raise TargetError(
                f"target.mcpu: the Ray cluster measures on {kinds}; name one, and its num_cores"
            )
        return fitting[0]

    @contextlib.contextmanager
    def children(self, device: Device, say: Say) -> Iterator[Children]:
        """One job at a time holds a machine's slot; it ends with the job, however that ends."""
        from dietcode.measure.ray_children import RayChildren

        children = RayChildren(self, device, say)
        try:
            yield children
        finally:
            children.close()

    def close(self) -> None:
        """Leave the cluster; it ends what this process still has there."""
        import ray

        ray.shutdown()


def need_ray() -> None:
    """Say what to install before an import fails.

    Raises
    ------
    RequestError
        The extra is not installed.
    """
    if find_spec("ray") is None:
        raise RequestError("the engine ray needs Ray: pip install 'dietcode[ray]'")


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
