"""A Ray cluster as an engine: builds go where a CPU is free, measurements to the machine with the device."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from dietcode.errors import TargetError, TuningError
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.engine import Device, Say, check_reachable
from dietcode.measure.gpu import Gpu
from dietcode.measure.gpu_device import gpu_device
from dietcode.measure.ray_children import RayChildren
from dietcode.measure.ray_nodes import RayNodes, need_token
from dietcode.measure.runner import describe
from dietcode.target.base import kind_of
from dietcode.target.cpu import Host, device_record, resolve_target
from dietcode.target.cuda import resolve_cuda
from dietcode.workload.spec import TargetSpec

Described = TypeVar("Described", Host, Gpu)
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

    def devices(self) -> list[Device]:
        """One for each kind of machine; no GPUs: a server gives their jobs to runners that have one."""
        any_cpu = TargetSpec(kind="llvm")
        return [self._cpu(any_cpu, place, host)[0] for place, host in sorted(self.places().items())]

    def resolve(self, spec: TargetSpec) -> Device:
        """The device of the cluster that a target names, or the only one that fits.

        A machine that is just joining is waited for, ten seconds at the most.

        Raises
        ------
        TargetError
            No machine measures, or several kinds fit and the spec names none.
        """
        return self._resolve_gpu(spec) if kind_of(spec) == "cuda" else self._resolve_cpu(spec)

    def _joined(self, places: Callable[[], dict[str, Described]]) -> list[tuple[str, Described]]:
        until = time.monotonic() + min(self.wait_secs, _JOINING_SECS)
        while not (found := places()) and time.monotonic() < until:
            time.sleep(_POLL_SECS)
        return sorted(found.items(), key=lambda one: one[0])

    def _cpu(self, spec: TargetSpec, place: str, host: Host) -> tuple[Device, tuple[bool, ...]]:
        """What a target stands for on one of the machines, and in what the machine differs from it."""
        target = resolve_target(spec, host)
        lacks = host.refusal(target)
        refusal = lacks and f"no machine of the Ray cluster can measure for it: {host.name} {lacks}"
        worker = CpuWorker(target.num_cores)
        device = Device(target, device_record(target, host.name), worker, refusal, host, place)
        return device, (lacks is not None, host.mcpu != target.mcpu, host.num_cores != target.num_cores)

    def _resolve_cpu(self, spec: TargetSpec) -> Device:
        found = [self._cpu(spec, place, host) for place, host in self._joined(self.places)]
        if not found:
            raise TargetError(
                f"no machine of the Ray cluster at {self.address} measures; "
                f"start one there with `dietcode ray-node --address {self.address} --measures`"
            )
        least = min(differs for _, differs in found)
        fitting = [device for device, differs in found if differs == least]
        several = len({str(device.record["id"]) for device in fitting}) > 1
        if several and spec.mcpu is None and spec.tag is None:
            kinds = ", ".join(sorted({device.target.label for device in fitting}))
            raise TargetError(
                f"target.mcpu: the Ray cluster measures on {kinds}; name one, and its num_cores"
            )
        return fitting[0]

    def _resolve_gpu(self, spec: TargetSpec) -> Device:
        target = resolve_cuda(spec)
        gpus = self._joined(self.gpus)
        for place, gpu in gpus:
            if gpu.capability == target.number:
                return gpu_device(replace(gpu, target=target), place)
        raise TargetError(
            f"no GPU of {target.arch} in the Ray cluster at {self.address} "
            f"(found: {', '.join(str(gpu) for _, gpu in gpus) or 'none'}); start a machine with one there: "
            f"`dietcode ray-node --address {self.address} --measures`"
        )

    @contextlib.contextmanager
    def children(self, device: Device, say: Say) -> Iterator[Children]:
        """One job at a time holds a machine's slot; it ends with the job, however that ends."""
        children = RayChildren(self, device, say)
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
