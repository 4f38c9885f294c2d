"""Opening the engine that is named; each is imported where it is used, because what it needs is optional."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dietcode.measure.engine import Engine
from dietcode.measure.engine_spec import EngineSpec
from dietcode.measure.local import LocalMachine
from dietcode.measure.ray_nodes import need_ray
from dietcode.target.cpu import Host


@contextmanager
def open_engine(spec: EngineSpec) -> Iterator[Engine]:
    """The engine that `spec` names.

    Raises
    ------
    RequestError
        What it needs is not installed, or not set.
    TuningError
        It cannot be reached.
    """
    engine: Engine
    if spec.ray_address is not None:
        need_ray()
        from dietcode.measure.ray_cluster import RayCluster

        engine = RayCluster(spec.ray_address)
    elif spec.rpc_tracker is not None and spec.rpc_key is not None:
        from dietcode.measure.rpc import RpcDevice

        host = None if spec.rpc_host is None else Host.from_json(spec.rpc_host)
        engine = RpcDevice(spec.rpc_tracker, spec.rpc_key, host=host)
    else:
        engine = LocalMachine()
    try:
        yield engine
    finally:
        engine.close()
