"""A process that pulls a library again and again, by many threads: ``python -m benchmarks.service.pulls``.

Each pull is what `dietcode pull` asks for with an empty cache: the latest manifest, its signature, which
version is the latest, and all files; sizes and digests are compared. Nothing is written.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

_PIECE_BYTES = 256 << 10
_TIMEOUT_SECS = 120.0


class Puller:
    """One connection, as a client has it."""

    def __init__(self, server: str, token: str, name: str) -> None:
        self._token, self._name = token, name
        self._connection = http.client.HTTPConnection(str(urlsplit(server).netloc), timeout=_TIMEOUT_SECS)

    def pull(self) -> int:
        """Everything once; how many bytes."""
        manifest, version = self._get(f"/libraries/{self._name}/latest")
        self._get(f"/libraries/{self._name}/{version}/signature")
        self._get(f"/libraries/{self._name}/head")
        plain = json.loads(manifest)
        listed = [*plain["files"].values(), *filter(None, [plain["runtime"]])]
        for facts in listed:
            self._blob(facts)
        self._connection.close()
        return len(manifest) + sum(int(facts["bytes"]) for facts in listed)

    def _ask(self, path: str) -> http.client.HTTPResponse:
        self._connection.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {self._token}"})
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"{path}: status {answer.status}: {answer.read(300)!r}")
        return answer

    def _get(self, path: str) -> tuple[bytes, str]:
        answer = self._ask(path)
        return answer.read(), answer.headers.get("DietCode-Version", "")

    def _blob(self, facts: dict[str, Any]) -> None:
        answer, digest, size = self._ask(f"/blobs/{facts['sha256']}"), hashlib.sha256(), 0
        while piece := answer.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
        if (f"sha256:{digest.hexdigest()}", size) != (facts["sha256"], facts["bytes"]):
            raise ValueError(f"{facts['sha256']}: {size} other bytes arrived")


def pull_for(server: str, token: str, name: str, num_threads: int, secs: float) -> dict[str, Any]:
    """Pull by so many threads at once, until so many seconds are over and every pull has ended.

    They begin one after the other within the first sixth of that time, as users do.
    """
    pull_secs: list[float] = []
    errors: list[str] = []
    sizes: list[int] = []
    begin = time.monotonic()

    def work(number: int) -> None:
        time.sleep(number / num_threads * secs / 6)
        while True:
            begun = time.perf_counter()
            try:
                sizes.append(Puller(server, token, name).pull())
                pull_secs.append(time.perf_counter() - begun)
            except (OSError, ValueError, http.client.HTTPException) as error:
                errors.append(f"{type(error).__name__}: {error}")
            if time.monotonic() > begin + secs:
                return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(num_threads)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - begun
    return {"pull_secs": pull_secs, "bytes": sum(sizes), "wall_secs": wall, "errors": errors}


if __name__ == "__main__":
    server, token, name, num_threads, secs = sys.argv[1:]
    print(json.dumps(pull_for(server, token, name, int(num_threads), float(secs))))
