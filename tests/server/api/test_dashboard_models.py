"""Pages of a job about a model, of its bundle and of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_tuning import FakeTuning, submit_model, work
from plain_server import NoTargets
from starlette.testclient import TestClient

from dietcode.protocol import Job
from dietcode_server.app import create_app
from dietcode_server.settings import Settings
from dietcode_server.store.database import Database


class _Idle:
    def wake(self) -> None:
        """Nothing runs."""

    def healthy(self) -> bool:
        return True


def test_pages_and_routes_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    database = Database(settings.database)
    database.upgrade()
    app = create_app(database, settings, _Idle(), NoTargets())
    client = TestClient(app, base_url="http://127.0.0.1:8000")

    def get(path: str, status: int = 200) -> str:
        response = client.get(path)
        assert response.status_code == status, (path, response.text[:300])
        return response.text

    job_id = submit_model(database)
    assert "Known once a worker has taken the graph apart" in get(f"/jobs/{job_id}")
    FakeTuning().install(monkeypatch.setattr)
    assert work(database, job_id, tmp_path) == 0
    job = Job.model_validate_json(get(f"/api/v1/jobs/{job_id}"))
    assert job.parts is not None and len(job.parts) == 2
    for shown in (get(f"/jobs/{job_id}"), get(f"/jobs/{job_id}/live")):
        assert f"/jobs/{job_id}/result" not in shown and "Clone" not in shown
        for part in job.parts:
            assert part.library is not None
            address = f"/libraries/{part.library.name.replace(':', '%3A')}/{part.library.version}"
            assert address in shown and part.name in shown
            assert part.library.name in get(address)
    for shown in (get(f"/jobs/{job_id}"), get("/libraries/mlp/1")):
        graph = shown[shown.index('id="graph-title"') :]
        found = [graph.find(f'<code class="muted">{part.digest[:8]}') for part in job.parts]
        assert min(found) > 0, graph
    get(f"/jobs/{job_id}/result", 404)
    get("/libraries/mlp/1/result", 404)
    listed = get("/libraries")
    assert ">mlp</a>" in listed and "<code>model</code>" in listed and "L 1–6" in listed
    assert "part:" not in listed
    bundle = get("/libraries/mlp/1")
    assert "mlp@1" in bundle and all(part.library and part.library.name in bundle for part in job.parts)
    info: dict[str, Any] = client.get("/api/v1/libraries/mlp/1/info").json()
    assert info["kind"] == "bundle" and info["num_micro_kernels"] == 2
    assert [one["kind"] for one in client.get("/api/v1/libraries").json()["libraries"]] == ["bundle"]
    yanked = client.post("/api/v1/libraries/mlp/1/yank", json={}).json()
    assert yanked["yanked_at"] is not None
    get("/api/v1/libraries/mlp/latest", 404)
    database.dispose()
