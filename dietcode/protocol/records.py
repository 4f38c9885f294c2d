"""Tuning records on their way to a server, and from it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dietcode.protocol.models import ProtocolModel


class RecordsImport(BaseModel):
    """Body of ``POST /records``.

    Attributes
    ----------
    lines : list of dict
        Of a records file of a GPU: its header, then what was measured.
    spec : dict or None
        The workload; needed where the server does not know it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lines: list[dict[str, Any]] = Field(min_length=1)
    spec: dict[str, Any] | None = None


class MeasuredDevice(ProtocolModel):
    """A device that measured a workload.

    Attributes
    ----------
    target : dict
        Of the device.
    num_micro_kernels : int
        Measured without an error.
    """

    id: str
    name: str
    target: dict[str, Any]
    num_micro_kernels: int
    last_at: datetime


class RecordsImported(ProtocolModel):
    """The result of an import.

    Attributes
    ----------
    added, known : int
        Micro-kernels that are new, and all that are known of the workload on the device now.
    queued : list of str
        Ids of jobs that waited for such records, and begin now.
    """

    workload: str
    device_id: str
    device: str
    added: int
    known: int
    queued: list[str]


class RecordsList(ProtocolModel):
    """The devices that measured a workload, the latest first."""

    workload: str
    devices: list[MeasuredDevice]


class RecordsExport(ProtocolModel):
    """The lines of a records file, header first."""

    lines: list[dict[str, Any]]
