"""Which engine builds and measures, as plain data; needs no compiler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dietcode.errors import RequestError
from dietcode.workload.text import clip

Kind = Literal["local", "ray", "rpc"]

_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):(?P<port>[0-9]{1,5})")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NEEDED: dict[str, tuple[str, ...]] = {
    "local": (),
    "ray": ("ray_address",),
    "rpc": ("rpc_tracker", "rpc_key"),
}
_RAY_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@dataclass(frozen=True)
class EngineSpec:
    """Which engine, and where it is.

    Parameters
    ----------
    kind : 'local', 'ray' or 'rpc'
    ray_address : str, optional
        ``HOST:PORT`` of the head of a Ray cluster.
    rpc_tracker, rpc_key : str, optional
        ``HOST:PORT`` of TVM's RPC tracker, and the key under which the device registers there.
    rpc_host : dict, optional
        The machine behind the key, as `dietcode.target.cpu.Host` has it, where it has been asked.

    Raises
    ------
    RequestError
        Something that the kind needs is missing or malformed, or something that it does not take is given.
    """

    kind: Kind = "local"
    ray_address: str | None = None
    rpc_tracker: str | None = None
    rpc_key: str | None = None
    rpc_host: dict[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.kind not in _NEEDED:
            raise RequestError(f"engine: given {clip(self.kind)}; allowed: {', '.join(_NEEDED)}")
        for name in ("ray_address", "rpc_tracker", "rpc_key"):
            given = getattr(self, name)
            if (given is None) == (name in _NEEDED[self.kind]):
                what = "is missing" if given is None else f"is given ({clip(given)})"
                takes = ", ".join(_NEEDED[self.kind]) or "none of ray_address, rpc_tracker, rpc_key"
                raise RequestError(f"{name} {what}; the engine {self.kind} takes {takes}")
            if given is not None and name != "rpc_key":
                split_address(name, given)
        if self.rpc_host is not None and self.kind != "rpc":
            raise RequestError(f"rpc_host is given; the engine {self.kind} takes none")
        if self.rpc_key is not None and not _KEY.fullmatch(self.rpc_key):
            raise RequestError(
                f"rpc_key: given {clip(self.rpc_key)}; allowed: letters, digits, '.', '_', '-'"
            )

    @classmethod
    def from_options(
        cls, ray: str | None = None, rpc_tracker: str | None = None, rpc_key: str | None = None
    ) -> EngineSpec:
        """Return the engine that a command line names, by default the local one.

        Raises
        ------
        RequestError
            Two are named, or one is named in part.
        """
        rpc = rpc_tracker is not None or rpc_key is not None
        if ray is not None and rpc:
            raise RequestError("--ray and --rpc-tracker name two engines; give one of them")
        if rpc and (rpc_tracker is None or rpc_key is None):
            raise RequestError("--rpc-tracker HOST:PORT and --rpc-key KEY go together; give both")
        kind: Kind = "ray" if ray is not None else "rpc" if rpc else "local"
        return cls(kind, ray, rpc_tracker, rpc_key)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that a process using the engine needs beside those of every worker."""
        names = _RAY_VARIABLES if self.kind == "ray" else ()
        return {name: environment[name] for name in names if name in environment}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineSpec:
        """The inverse of `to_json`.

        Raises
        ------
        RequestError
            It describes no engine.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise RequestError(f"engine: given {clip(dict(data))}; it describes none") from error


def split_address(name: str, given: str) -> tuple[str, int]:
    """Split an address into host and port.

    Parameters
    ----------
    name : str
        Name of the address in the message.

    Raises
    ------
    RequestError
        It is not ``HOST:PORT``.
    """
    found = _ADDRESS.fullmatch(given)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise RequestError(f"{name}: given {clip(given)}; allowed: HOST:PORT, as in 10.0.0.5:6379")
    return found["host"].strip("[]"), int(found["port"])
