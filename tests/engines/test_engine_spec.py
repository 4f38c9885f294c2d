"""Which engine, as options, settings and plain data name it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc
from small_libraries import spec_data

from dietcode.errors import RequestError
from dietcode.measure.engine_spec import EngineSpec, split_address
from dietcode_server.settings import load_settings

HOSTED = EngineSpec("rpc", None, "10.0.0.1:9190", "pi.4", {"mcpu": "cortex-a72", "num_cores": 4})


@pytest.mark.parametrize(
    "spec",
    [
        EngineSpec(),
        EngineSpec("ray", ray_address="h:1"),
        EngineSpec("rpc", None, "10.0.0.1:9190", "pi.4"),
        HOSTED,
    ],
)
def test_plain_data_and_back(spec: EngineSpec) -> None:
    assert EngineSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ray": "h:1", "rpc_tracker": "h:2", "rpc_key": "k"}, "--ray and --rpc-tracker name two engines"),
        ({"rpc_tracker": "h:2"}, "go together"),
        ({"rpc_key": "k"}, "go together"),
        ({"ray": "somewhere"}, r"ray_address: given 'somewhere'; allowed: HOST:PORT"),
        ({"ray": "h:0"}, "allowed: HOST:PORT"),
        ({"ray": "h:65536"}, "allowed: HOST:PORT"),
        ({"ray": "http://h:1"}, "allowed: HOST:PORT"),
        ({"rpc_tracker": "h:1", "rpc_key": "a b"}, "rpc_key: given 'a b'; allowed: letters"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        EngineSpec.from_options(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "cloud"}, "allowed: local, ray, rpc"),
        ({"kind": "ray"}, "ray_address is missing; the engine ray takes ray_address"),
        ({"kind": "local", "rpc_key": "k"}, "the engine local takes none"),
        ({"kind": "rpc", "rpc_tracker": "h:1"}, "rpc_key is missing"),
        ({"color": "red"}, "describes none"),
        ({"rpc_host": {}}, "rpc_host is given; the engine local takes none"),
    ],
)
def test_wrong_data(data: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        EngineSpec.from_json(data)


@needs_nvrtc
def test_a_gpu_over_rpc_is_refused(inside: Any, tmp_path: Path) -> None:
    spec = tmp_path / "gpu.json"
    spec.write_text(json.dumps(spec_data("gpu", target={"kind": "cuda", "arch": "sm_90"})))
    with socket.create_server(("127.0.0.1", 0)) as tracker:
        engine = ("--rpc-tracker", f"127.0.0.1:{tracker.getsockname()[1]}", "--rpc-key", "board")
        done = inside("tune", spec, "-o", tmp_path / "gpu", *engine)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "target.kind: given cuda; over RPC only processors are measured" in done.stderr


def test_addresses() -> None:
    assert split_address("it", "h:80") == ("h", 80)
    assert split_address("it", "[::1]:80") == ("::1", 80)


def test_a_worker_is_given_the_cluster_s_token_and_nothing_else() -> None:
    here = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/run/token", "AWS_SECRET": "s"}
    assert EngineSpec().environment(here) == {}
    assert EngineSpec("ray", ray_address="h:1").environment(here) == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/run/token",
    }


def test_settings_of_a_server_name_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIETCODE_SERVE_ENGINE", "ray")
    with pytest.raises(RequestError, match="ray_address is missing"):
        load_settings()
    monkeypatch.setenv("DIETCODE_SERVE_RAY_ADDRESS", "10.0.0.5:6379")
    assert load_settings().engine_spec == EngineSpec("ray", ray_address="10.0.0.5:6379")
