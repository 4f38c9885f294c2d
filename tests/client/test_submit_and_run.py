"""Recursions and programs by the command line: submitted, watched, pulled, loaded and run.

The server is the application in a thread of this process, whose worker builds kernels that nobody tuned.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvicorn
from fake_tuning import DEVICE, FakeTuning, untuned_library, work
from needs import of_extra
from sqlalchemy import select

import dietcode
from dietcode.protocol import JobState
from dietcode_server.app import create_app
from dietcode_server.engine.targets import Resolved, Targets
from dietcode_server.settings import Settings
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

torch: Any = pytest.importorskip("torch", reason=of_extra("models"))
pytest.importorskip("tvm", reason=of_extra("models"))

FILE = """
import numpy as np
import torch, dietcode
from torch import nn

torch.manual_seed(0)

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_x, self.of_h = nn.Linear(6, 16), nn.Linear(16, 16, bias=False)

    def forward(self, x, h):
        return torch.tanh(self.of_x(x) + self.of_h(h).sum(0))

tree = dietcode.Recursion(Cell().eval(), children=dietcode.ChildSum(max=3), states=[(16,)], x=(6,))
structures = [np.array([[-1, -1], [-1, -1], [0, 1]], np.int32)]

step, score = nn.Linear(8, 8), nn.Linear(8, 1)

@dietcode.program
def settle(x):
    count = 0
    while score(x).item() < 1 and count < 5:
        x, count = torch.tanh(step(x)) + 0.2, count + 1
    return x, count

rows = [torch.randn(8) for _ in range(6)]
"""


class _OneTarget(Targets):
    """Every target is this test's device."""

    def resolve(self, spec: Any) -> Resolved:
        return Resolved(DEVICE[2], DEVICE, runnable=True)


class _Worker:
    """Does one job after the other, as soon as it is told of it."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._told, self._ends = threading.Event(), False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._told.set()
        self._thread.join()

    def wake(self) -> None:
        self._told.set()

    def healthy(self) -> bool:
        return True

    def _run(self) -> None:
        while self._told.wait() and not self._ends:
            self._told.clear()
            with self._database.read() as session:
                waiting = select(JobRow.id).where(JobRow.state == JobState.QUEUED.value)
                queued = list(session.scalars(waiting))
            for one in queued:
                work(self._database, one, self._folder)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    settings = Settings(data_dir=tmp_path / "data")
    settings.data_dir.mkdir()
    database = Database(settings.database)
    database.upgrade()
    FakeTuning(untuned_library).install(monkeypatch.setattr)
    with _Worker(database, tmp_path) as worker, socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(database, settings, worker, _OneTarget())
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("DIETCODE_SERVER", url)
        yield url
        server.should_exit = True
        thread.join()
    database.dispose()


def _command(inside: Callable[..., Any], *arguments: object) -> Any:
    done = inside(*arguments)
    assert done.returncode == 0, (arguments, done.stderr)
    return done


def _bundle(inside: Callable[..., Any], file: Path, name: str, samples: str, *options: object) -> Path:
    """Submit an object of a file, watch its job, and pull what it made."""
    lock = file.with_name("dietcode.lock")
    given = (
        f"{file}:{name}",
        "--lock",
        lock,
        "--samples",
        samples,
        "--name",
        name,
        "--trials",
        "2",
        "--seconds",
        "2",
    )
    done = _command(inside, "submit", *given, *options)
    job = done.stdout.split()[-1]
    watched = _command(inside, "watch", job)
    assert "succeeded" in watched.stdout + watched.stderr
    shown = json.loads(_command(inside, "show", job, "--json").stdout)
    assert (shown["state"], shown["kind"], shown["library"]["name"]) == ("succeeded", "model", name)
    bundle = file.parent / f"{name}.bundle"
    _command(inside, "pull", name, "-o", bundle, "--no-lock")
    assert not (bundle / "weights.safetensors").exists()  # they stay where they were
    return bundle


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(FILE)
    return path


def _module(file: Path) -> Any:
    space: dict[str, Any] = {"__name__": "models_of_a_test", "__file__": str(file)}
    exec(compile(FILE, str(file), "exec"), space)
    return SimpleNamespace(**space)


@pytest.mark.thorough
def test_a_recursion(served: str, inside: Callable[..., Any], file: Path) -> None:
    bundle = _bundle(inside, file, "tree", "structures", "--max-nodes", 64, "--max-level", 16)
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["samples"]["calls"] == 1 and manifest["workspace_bytes"] >= 64 * manifest["node_bytes"]
    text = _command(inside, "inspect", bundle).stdout
    assert "schedules" in text and "not timed" in text and "workspace" in text
    model = dietcode.load(bundle)  # with the weights that the lock file names
    children = np.array([[-1, -1, -1], [0, -1, -1], [0, 1, -1], [2, 0, 1]], np.int32)
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    wanted = _module(file).tree(SimpleNamespace(children=children), x, all_nodes=True)
    found = model(dietcode.Structure(children), x, all_nodes=True)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=1e-5)


@pytest.mark.long  # as a recursion; jobs of programs are in server/engine/test_program_jobs.py
def test_a_program(served: str, inside: Callable[..., Any], file: Path) -> None:
    bundle = _bundle(inside, file, "settle", "rows")
    program = dietcode.load(bundle)
    module = _module(file)
    given = [torch.randn(8, generator=torch.Generator().manual_seed(seed)) for seed in range(9)]
    for (own, count), one in zip(program(given), given, strict=True):
        wanted, right = module.settle.eager(one)
        assert count == right
        np.testing.assert_allclose(np.asarray(own), wanted.detach().numpy(), rtol=0, atol=1e-5)
