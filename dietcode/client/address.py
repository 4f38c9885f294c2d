"""The address of a server, and the credentials sent to it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dietcode._version import __version__
from dietcode.errors import RequestError
from dietcode.protocol.address import DEFAULT_SERVER
from dietcode.workload.text import clip

API = "/api/v1"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Address:
    """A server, and the token that it is sent.

    Attributes
    ----------
    server : str
        ``scheme://host[:port][/prefix]`` without a slash at the end.
    token : str or None
        Sent as ``Authorization: Bearer``; not part of the repr.
    """

    server: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, server: str | None = None, token: str | None = None) -> Address:
        """Fill in ``$DIETCODE_SERVER``, ``$DIETCODE_TOKEN`` and the default.

        Raises
        ------
        RequestError
            The URL is neither http nor https, or the token cannot be part of a header.
        """
        given = server or os.environ.get("DIETCODE_SERVER") or DEFAULT_SERVER
        secret = token or os.environ.get("DIETCODE_TOKEN") or None
        if secret is not None and not (secret.isascii() and secret.isprintable() and " " not in secret):
            raise RequestError("DIETCODE_TOKEN: not a token; allowed: printable ASCII without spaces")
        return cls(normal_url(given), secret)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request. Nothing is to be compressed: sizes are checked as they arrive."""
        headers = {"User-Agent": f"dietcode/{__version__}", "Accept-Encoding": "identity"}
        return headers | ({"Authorization": f"Bearer {self.token}"} if self.token else {})

    @property
    def is_loopback(self) -> bool:
        """Return whether the server is on this machine, so that no proxy leads to it."""
        return urlsplit(self.server).hostname in _LOOPBACK


def normal_url(given: str) -> str:
    """Return the one spelling of a server's URL.

    Raises
    ------
    RequestError
        It is no http or https URL, or holds a password, a query or a fragment.
    """
    allowed = "allowed: http://HOST[:PORT] or https://HOST[:PORT]"
    problem = RequestError(f"server: given {clip(given)}; {allowed}")
    try:
        parts = urlsplit(given.strip())
        port, host = parts.port, parts.hostname
    except ValueError:
        raise problem from None
    if parts.scheme not in {"http", "https"} or not host or not given.strip().isprintable():
        raise problem
    if parts.username is not None or parts.password is not None:
        raise RequestError(
            f"server: a user or password in the URL; {allowed}, and DIETCODE_TOKEN for a token"
        )
    if parts.query or parts.fragment or set(given.strip()) & set(' <>"\\^`{|}'):
        raise problem
    shown = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[parts.scheme]
    where = shown if port in {None, default} else f"{shown}:{port}"
    return f"{parts.scheme}://{where}{parts.path.rstrip('/')}"
