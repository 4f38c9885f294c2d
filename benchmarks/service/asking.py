"""Requests at a fixed rate, each timed from when it was due: a server that stalls slows no question down."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_THREADS = 64
_TIMEOUT_SECS = 60.0


class Asker:
    """Connections to one server, one for each thread; they are closed at the end."""

    def __init__(self, server: str, token: str | None = None) -> None:
        self._where = str(urlsplit(server).netloc)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._local = threading.local()
        self._made: list[http.client.HTTPConnection] = []

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._made:
            connection.close()

    def ask(self, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body."""
        try:
            return self._ask(path, body)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self._local.connection.close()  # the server ends those that are idle; it opens again by itself
            return self._ask(path, body)

    def _ask(self, path: str, body: Any) -> tuple[int, bytes]:
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPConnection(self._where, timeout=_TIMEOUT_SECS)
            self._made.append(self._local.connection)
        connection: http.client.HTTPConnection = self._local.connection
        if body is None:
            connection.request("GET", path, headers=self._headers)
        else:
            headers = self._headers | {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@dataclass
class Seen:
    """What was answered.

    Attributes
    ----------
    millis : dict
        Milliseconds by what was asked, from when a request was due until its answer had arrived.
    statuses : Counter
        By status, and by the name of what was raised instead.
    """

    millis: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def num_errors(self) -> int:
        """Answers other than good ones."""
        return sum(count for status, count in self.statuses.items() if not status.startswith("2"))


def at_rate(
    rate: float, until: Callable[[], bool], asks: dict[str, Callable[[int], tuple[int, bytes]]]
) -> Seen:
    """Ask in turns, `rate` times a second, until `until` says so; late answers hold up no later question."""
    seen, names, lock = Seen(), list(asks), threading.Lock()

    def one(number: int, due: float) -> None:
        name = names[number % len(names)]
        try:
            status = str(asks[name](number)[0])
        except OSError as error:
            status = type(error).__name__
        millis = (time.perf_counter() - due) * 1e3
        with lock:
            seen.millis.setdefault(name, []).append(millis)
            seen.statuses[status] += 1

    start, number = time.perf_counter(), 0
    with ThreadPoolExecutor(_THREADS) as pool:
        while not until():
            due = start + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            pool.submit(one, number, due)
            number += 1
    return seen
