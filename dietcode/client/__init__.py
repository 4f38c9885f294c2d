"""The client of a DietCode server: jobs, events, and libraries pulled, checked and cached.

In processing order: ``address``, ``answers``, ``listing``, ``calls``, ``transport``, ``events``, ``blobs``,
``trusting``, ``known``, ``lock``, ``assembling``, ``pull``, ``client``. It needs no compiler.
"""

from __future__ import annotations

from dietcode.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
