"""Addresses to listen on, and who can reach them."""

from __future__ import annotations

import ipaddress
import socket

from dietcode.errors import RequestError
from dietcode.workload.text import clip


def parse_host(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address that ``--host`` names.

    Raises
    ------
    RequestError
        `host` is not an address.
    """
    name = "127.0.0.1" if host.lower() == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        raise RequestError(
            f"--host: given {clip(host)}; allowed: 127.0.0.1, ::1, localhost, or another of this machine's "
            "addresses"
        ) from None


def family_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> socket.AddressFamily:
    """The family of its sockets."""
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    return parse_host(host).is_loopback


def names_of(host: str) -> tuple[str, ...]:
    """Names by which clients call that address; ``0.0.0.0`` and ``::`` have none."""
    return () if parse_host(host).is_unspecified else (host,)
