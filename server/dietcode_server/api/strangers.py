"""Callers with wrong tokens: each address may do so a few times a minute, and then waits.

A token is too long to be guessed; what is bounded here is the work that guessing makes, and the lines that it
leaves in the log. Tokens that were valid a while ago are asked about whatever else comes from their address,
so that nobody behind the same proxy is kept out by somebody else.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

from dietcode_server.api.quotas import Rates

_MAX_KNOWN = 1024


class Strangers:
    """Wrong tokens by address, and the tokens that were right; thread-safe, and of bounded size.

    Parameters
    ----------
    per_minute : int
        Wrong tokens of one address.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._rates = Rates()
        self._known: OrderedDict[str, None] = OrderedDict()  # digests of tokens
        self._lock = threading.Lock()

    def must_wait(self, address: str, digest: str) -> float:
        """Seconds until a token may be tried from an address; 0 where it may be now."""
        with self._lock:
            if digest in self._known:
                return 0.0
        return self._rates.left(_network(address), self._per_minute)

    def was_right(self, digest: str) -> None:
        """Note a token that was valid."""
        with self._lock:
            self._known[digest] = None
            self._known.move_to_end(digest)
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)

    def was_wrong(self, address: str, digest: str) -> None:
        """Count a token that was not."""
        with self._lock:
            self._known.pop(digest, None)
        self._rates.take(_network(address), self._per_minute)


def _network(address: str) -> str:
    """Return the network that counts as one stranger: an address of IPv4, or 2**64 of IPv6."""
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if given.version == 4 else str(ipaddress.ip_network((int(given) >> 64 << 64, 64)))
