"""The real application over a real database; only the engine is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from small_libraries import spec_data
from starlette.testclient import TestClient

from dietcode.workload.parse import spec_from_data
from dietcode_server.app import create_app
from dietcode_server.engine.targets import Targets
from dietcode_server.settings import Settings
from dietcode_server.store import jobs
from dietcode_server.store.database import Database

URL = "http://127.0.0.1:8000"
MAX_BODY_BYTES = 64 << 10
_numbers = count()


@dataclass
class Supervisor:
    """Notes how often it was woken."""

    wakes: int = 0
    works: bool = True

    def wake(self) -> None:
        self.wakes += 1

    def healthy(self) -> bool:
        return self.works

    def trouble(self) -> str:
        return "" if self.works else "the engine waits for a disk"


@dataclass
class Service:
    """An application and what it works with."""

    database: Database
    settings: Settings
    targets: Targets
    supervisor: Supervisor = field(default_factory=Supervisor)

    def __post_init__(self) -> None:
        self.app = create_app(self.database, self.settings, self.supervisor, self.targets)
        self.client = TestClient(self.app, base_url=URL, raise_server_exceptions=False)

    def add_job(self, name: str | None = None) -> str:
        """A new job that waits for a runner, without asking the API."""
        spec = spec_from_data(spec_data(name or f"job-{next(_numbers)}"))
        target = self.targets.resolve(spec).target
        with self.database.write() as session:
            row, _ = jobs.submit(
                session,
                spec=spec,
                target=target,
                device=None,
                runnable=False,
                force=True,
                idempotency_key=None,
            )
            return row.id

    def run_job(self, job_id: str) -> None:
        """Bring a waiting job to running."""
        with self.database.write() as session:
            jobs.request_cancel(session, job_id)
            jobs.resume(session, job_id)
            assert jobs.claim(session, job_id, "a test")


@pytest.fixture(scope="session")
def targets() -> Targets:
    return Targets()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, targets: Targets) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("data")
    settings = Settings(
        data_dir=folder,
        max_body_bytes=MAX_BODY_BYTES,
        allowed_hosts=("lab.example",),
        max_wrong_tokens_per_minute=1_000_000,
    )
    database = Database(settings.database)
    database.upgrade()
    yield Service(database, settings, targets)
    database.dispose()


@pytest.fixture(scope="module")
def client(service: Service) -> TestClient:
    return service.client


@pytest.fixture(scope="session")
def problem() -> Callable[..., dict[str, Any]]:
    """Check that a response is a problem document, and return it."""

    def check(response: Any, status: int, kind: str) -> dict[str, Any]:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        document: dict[str, Any] = response.json()
        assert document["type"] == f"urn:dietcode:problem:{kind}"
        assert document["status"] == status
        assert document["title"] and document["detail"]
        assert "\n" not in document["detail"]
        for secret in ("Traceback", str(Path(__file__).parents[3]), "site-packages", "sqlite"):
            assert secret not in response.text
        return document

    return check
