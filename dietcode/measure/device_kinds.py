"""What engines know of each kind of device; a new kind gets an entry in `DEVICE_KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dietcode.errors import TargetError
from dietcode.measure.cpu_device import CpuDevices
from dietcode.measure.engine import Device
from dietcode.measure.gpu_device import GpuDevices
from dietcode.target.base import Target, kind_of
from dietcode.target.kinds import KINDS
from dietcode.workload.target_spec import TargetSpec


class DeviceKind(Protocol):
    """One kind of device, here and on other machines, which describe theirs by plain data.

    A description has ``to_json``.

    Attributes
    ----------
    kind : str
        As ``target.kind`` has it.
    prefix : str
        Beginning of the resource of a Ray node for such a device.
    can_build : bool
        Whether code for it can be compiled here.
    from_json : callable
        Makes a description of plain data.
    """

    @property
    def kind(self) -> str: ...

    @property
    def prefix(self) -> str: ...

    @property
    def can_build(self) -> bool: ...

    @property
    def from_json(self) -> Callable[[dict[str, Any]], Any]: ...

    def target(self, spec: TargetSpec) -> Target:
        """Resolve a target, whether or not such a device is here.

        Raises
        ------
        TargetError
            It is unknown.
        """

    def here(self) -> list[Any]:
        """Describe the devices of this machine that can be built for and measured on.

        Raises
        ------
        TargetError
            A device cannot be used.
        """

    def is_usable(self, described: Any) -> bool:
        """Return whether candidates that are built here run on such a device."""

    def all_of(self, found: Sequence[tuple[str, Any]]) -> list[Device]:
        """Return the devices that targets can mean, of those that are described.

        Parameters
        ----------
        found : sequence of (str, description)
            Devices with their slots; an empty slot stands for that of this machine.
        """

    def own(self, spec: TargetSpec) -> Device:
        """Return this machine's device for a target.

        Raises
        ------
        TargetError
            The target is unknown, or there is no such device.
        """

    def choose(self, spec: TargetSpec, found: Sequence[tuple[str, Any]], cluster: str, start: str) -> Device:
        """Return the device of a cluster that a target names, or the only one that fits.

        Parameters
        ----------
        found : sequence of (str, description)
            Devices of the cluster with their slots.
        cluster, start : str
            The cluster's name, and the command that adds a machine to it, for errors.

        Raises
        ------
        TargetError
            No device fits, or several do and the target names none.
        """


DEVICE_KINDS: dict[str, DeviceKind] = {kind.kind: kind for kind in (CpuDevices(), GpuDevices())}


def device_kind_of(spec: TargetSpec) -> DeviceKind:
    """Return the kind of a target; that of CPUs, which refuses it, for a tag of any other kind."""
    return DEVICE_KINDS.get(kind_of(spec), DEVICE_KINDS[CpuDevices.kind])


def devices_here(on_error: Callable[[str], None]) -> dict[str, list[Any]]:
    """Describe the devices of this machine that can be built for and measured on, by kind.

    Parameters
    ----------
    on_error : callable
        Called with one line for a kind that cannot be used.
    """
    found: dict[str, list[Any]] = {}
    for name, kind in DEVICE_KINDS.items():
        try:
            found[name] = kind.here()
        except TargetError as error:
            on_error(f"{KINDS[name].noun} of this machine is not measured on: {error}")
    return found
