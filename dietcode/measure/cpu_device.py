"""CPUs as devices of an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from dietcode.errors import TargetError
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.engine import Device
from dietcode.target.cpu import CpuTarget, Host, device_record, resolve_target
from dietcode.workload.target_spec import TargetSpec

_SLOT = "measure"  # the lock that keeps two runs from measuring on this machine's CPU


def cpu_device(spec: TargetSpec, host: Host, slot: str, explain: Callable[[str], str]) -> Device:
    """Return a machine's CPU as a device for a target.

    Parameters
    ----------
    slot : str
        As `Device` has it.
    explain : callable
        Makes the refusal of what the machine lacks for the target.

    Raises
    ------
    TargetError
        The target is unknown.
    """
    target = resolve_target(spec, host)
    lacks = host.refusal(target)
    refusal = None if lacks is None else explain(lacks)
    record = device_record(target, host, spec)
    return Device(target, record, CpuWorker(target.num_cores), refusal, host, slot)


class CpuDevices:
    """`dietcode.measure.device_kinds.DeviceKind` of CPUs; a machine is described by its `Host`."""

    kind: ClassVar[str] = "llvm"
    prefix: ClassVar[str] = "dietcode-measures:"
    can_build: ClassVar[bool] = True
    from_json = staticmethod(Host.from_json)

    def target(self, spec: TargetSpec) -> CpuTarget:
        """As `DeviceKind` has it: that of this machine."""
        return resolve_target(spec)

    def here(self) -> list[Host]:
        """As `DeviceKind` has it."""
        return [Host.here()]

    def is_usable(self, described: Host) -> bool:
        """As `DeviceKind` has it: a machine of this one's instruction set."""
        return described.machine == os.uname().machine

    def all_of(self, found: Sequence[tuple[str, Host]]) -> list[Device]:
        """As `DeviceKind` has it: each machine with all its cores."""
        spec = TargetSpec(kind="llvm")
        return [cpu_device(spec, host, slot or _SLOT, str) for slot, host in found]

    def own(self, spec: TargetSpec) -> Device:
        """As `DeviceKind` has it."""
        return cpu_device(
            spec,
            Host.here(),
            _SLOT,
            lambda lacks: (
                f"this machine {lacks}, so nothing can be measured for it here; "
                "measure on such a machine and build with --records"
            ),
        )

    def choose(self, spec: TargetSpec, found: Sequence[tuple[str, Host]], cluster: str, start: str) -> Device:
        """As `DeviceKind` has it: the machine that differs least from the target."""

        def of(slot: str, host: Host) -> tuple[tuple[bool, ...], Device]:
            refusal = f"no machine of {cluster} can measure for it: {host.name} "
            device = cpu_device(spec, host, slot, refusal.__add__)
            target = cast(CpuTarget, device.target)
            return (
                device.refusal is not None,
                host.features != target.features,
                host.num_cores != target.num_cores,
            ), device

        if not found:
            raise TargetError(f"no machine of {cluster} measures; start one there with {start}")
        devices = [of(slot, host) for slot, host in found]
        least = min(differs for differs, _ in devices)
        fitting = [device for differs, device in devices if differs == least]
        several = len({str(device.record["id"]) for device in fitting}) > 1
        if several and spec.mcpu is None and spec.tag is None:
            labels = ", ".join(sorted({device.target.label for device in fitting}))
            raise TargetError(f"target.mcpu: {cluster} measures on {labels}; name one, and its num_cores")
        return fitting[0]
