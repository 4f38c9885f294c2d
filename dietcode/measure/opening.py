"""Opening an engine by name; it is imported only then, since what it needs is optional."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dietcode.extras import need
from dietcode.measure.engine import Engine
from dietcode.measure.engine_spec import EngineSpec, Kind
from dietcode.measure.local import LocalMachine
from dietcode.target.cpu import Host


def _ray_cluster(spec: EngineSpec) -> Engine:
    need("ray", "the engine ray")
    from dietcode.measure.ray_cluster import RayCluster

    assert spec.ray_address is not None, "as `EngineSpec` has it"
    return RayCluster(spec.ray_address)


def _rpc_device(spec: EngineSpec) -> Engine:
    from dietcode.measure.rpc import RpcDevice

    assert spec.rpc_tracker is not None and spec.rpc_key is not None, "as `EngineSpec` has it"
    host = None if spec.rpc_host is None else Host.from_json(spec.rpc_host)
    return RpcDevice(spec.rpc_tracker, spec.rpc_key, host=host)


_ENGINES: dict[Kind, Callable[[EngineSpec], Engine]] = {
    "local": lambda spec: LocalMachine(),
    "ray": _ray_cluster,
    "rpc": _rpc_device,
}


@contextmanager
def open_engine(spec: EngineSpec) -> Iterator[Engine]:
    """Open the engine that `spec` names, until the end of the block.

    Raises
    ------
    RequestError
        What it needs is not installed, or not set.
    TuningError
        It cannot be reached.
    """
    engine = _ENGINES[spec.kind](spec)
    try:
        yield engine
    finally:
        engine.close()
