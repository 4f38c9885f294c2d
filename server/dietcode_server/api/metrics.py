"""Metrics that Prometheus reads. Labels come from fixed sets only: a client cannot make new time series."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dietcode_server.api.work_figures import WorkFigures

_METHODS = frozenset({"GET", "HEAD", "POST"})
_UNMATCHED = "unmatched"


class Metrics:
    """The counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.work = WorkFigures(self.registry)
        self.submissions = Counter(
            "dietcode_submissions",
            "Jobs submitted: new ones, and known ones, which give the job there is.",
            ["result"],
            registry=self.registry,
        )
        for result in ("new", "known"):
            self.submissions.labels(result)
        self.engine = Gauge(
            "dietcode_engine_healthy", "Whether the engine that runs jobs works.", registry=self.registry
        )
        self.requests = Counter(
            "dietcode_http_requests",
            "HTTP requests answered, by route template.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.latency = Histogram(
            "dietcode_http_request_seconds",
            "Time until a response begins, by route template.",
            ["method", "route"],
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class RequestMetrics:
    """ASGI middleware that counts requests and times them until their response begins."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and note its status."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        noted = False

        def note(status: int) -> None:
            nonlocal noted
            noted = True
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = getattr(scope.get("route"), "path", _UNMATCHED)
            self.metrics.requests.labels(method, route, str(status)).inc()
            self.metrics.latency.labels(method, route).observe(time.perf_counter() - started)

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, noting_send)
        except Exception:
            if not noted:
                note(500)
            raise
