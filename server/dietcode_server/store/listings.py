"""Generated code of micro-kernels, kept compressed beside the libraries for which they were considered."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from dietcode_server.store.tables import ListingRow, MicroKernelRow

MAX_TEXT_BYTES = 1 << 20  # of one micro-kernel
MAX_BYTES = 1 << 20  # of one library, compressed


def keep(session: Session, library_id: int, listings: Mapping[str, tuple[str, str]]) -> int:
    """Keep texts of a library's micro-kernels until they fill `MAX_BYTES`; how many were kept.

    What the library has already stays as it is, and what is about none of its micro-kernels is left out.

    Parameters
    ----------
    listings : mapping of str to (str, str)
        Kind and text by the micro-kernel's name, the most important first.
    """
    names = select(MicroKernelRow.micro_kernel).where(MicroKernelRow.library_id == library_id)
    wanted = set(session.scalars(names)) - listed(session, library_id)
    rows, room = [], MAX_BYTES
    for name, (kind, text) in listings.items():
        data = text.encode()
        packed = zlib.compress(data, 9)
        if name not in wanted or len(data) > MAX_TEXT_BYTES or len(packed) > room:
            continue
        room -= len(packed)
        rows.append({"library_id": library_id, "micro_kernel": name, "kind": kind, "text": packed})
    if rows:
        session.execute(insert(ListingRow), rows)
    return len(rows)


def code_of(session: Session, library_id: int, micro_kernel: str) -> tuple[str, str] | None:
    """Kind (tir or cuda) and text of a micro-kernel's code; None where it was not kept."""
    row = session.get(ListingRow, (library_id, micro_kernel.replace("\0", "?")))
    return None if row is None else (row.kind, zlib.decompress(row.text).decode())


def listed(session: Session, library_id: int) -> set[str]:
    """Names of the micro-kernels of a library whose code was kept."""
    query = select(ListingRow.micro_kernel).where(ListingRow.library_id == library_id)
    return set(session.scalars(query))
