"""The parts of a server that the routes work with, handed to them by the application."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Request

from dietcode_server.api.followers import Followers
from dietcode_server.api.metrics import Metrics
from dietcode_server.api.quotas import Rates
from dietcode_server.engine.targets import Targets
from dietcode_server.settings import Settings
from dietcode_server.store.chunks import ChunkCache
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing


class SupervisorLike(Protocol):
    """The part of the engine that the routes know; its methods may be called from any thread."""

    def wake(self) -> None:
        """Look at the jobs now: one was added, resumed or is to be cancelled."""

    def healthy(self) -> bool:
        """Return whether the engine works."""

    def trouble(self) -> str:
        """Return why it does not, and what to do; '' where it works. It names no paths."""


@dataclass(frozen=True)
class Services:
    """The parts of one server.

    Attributes
    ----------
    rates, check_rates : Rates
        Of submissions, and of texts that are checked.
    stopping : threading.Event
        Set when the server begins to stop: open event streams end then.
    """

    database: Database
    settings: Settings
    supervisor: SupervisorLike
    keys: KeyRing
    chunks: ChunkCache
    targets: Targets = field(default_factory=Targets)
    metrics: Metrics = field(default_factory=Metrics)
    rates: Rates = field(default_factory=Rates)
    check_rates: Rates = field(default_factory=Rates)
    followers: Followers = field(default_factory=Followers)
    stopping: threading.Event = field(default_factory=threading.Event)


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesOf = Annotated[Services, Depends(_services)]
