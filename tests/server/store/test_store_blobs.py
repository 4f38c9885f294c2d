"""Content by digest: what comes out is what went in, any range of it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select

from dietcode.errors import NotFoundError, RequestError
from dietcode_server.store import blobs
from dietcode_server.store.blobs import CHUNK_BYTES
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.tables import Blob, BlobChunk

DATA = random.Random(0).randbytes(3 * CHUNK_BYTES + 17)
BORDERS = [0, CHUNK_BYTES, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES, len(DATA)]
OFFSETS = st.one_of(
    st.integers(0, len(DATA) + 5),
    st.tuples(st.sampled_from(BORDERS), st.integers(-3, 3)).map(lambda pair: max(0, sum(pair))),
)


@pytest.fixture(scope="module")
def stored(
    kind: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Database, str]]:
    """A database that holds DATA."""
    path: Path = tmp_path_factory.mktemp("blobs") / "dietcode.db"
    url = f"sqlite:///{path}" if kind == "sqlite" else request.getfixturevalue("postgres").create()
    database = Database(url)
    database.upgrade()
    with database.write() as session:
        digest = blobs.add(session, DATA)
    yield database, digest
    database.dispose()


@settings(deadline=None, max_examples=examples(150))
@given(start=OFFSETS, stop=st.none() | OFFSETS)
def test_any_range(stored: tuple[Database, str], start: int, stop: int | None) -> None:
    database, digest = stored
    with database.read() as session:
        pieces = list(blobs.read(session, digest, start, stop))
    assert b"".join(pieces) == DATA[start:stop]
    assert all(0 < len(piece) <= CHUNK_BYTES for piece in pieces)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES])
def test_sizes_around_a_chunk(database: Database, size: int) -> None:
    data = DATA[:size]
    with database.write() as session:
        digest = blobs.add(session, data)
    assert digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    with database.read() as session:
        found = blobs.facts(session, digest)
        assert (found.sha256, found.size_bytes) == (digest, size)
        assert b"".join(blobs.read(session, digest)) == data


def test_the_same_content_is_kept_once(database: Database) -> None:
    with database.write() as session:
        first, again = blobs.add(session, DATA), blobs.add(session, DATA)
    with database.write() as session:
        later = blobs.add(session, DATA)
        counts = [session.scalar(select(func.count()).select_from(table)) for table in (Blob, BlobChunk)]
    assert first == again == later
    assert counts == [1, 4]


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:" + "A" * 64, "ab" * 32, "sha256:" + "0" * 64 + "\n"]
)
def test_what_is_no_digest(database: Database, digest: str) -> None:
    for call in (blobs.facts, blobs.read):
        with (
            pytest.raises(RequestError, match="allowed: sha256:<64 hex digits>") as caught,
            database.read() as session,
        ):
            call(session, digest)
        assert "\n" not in str(caught.value) and not isinstance(caught.value, NotFoundError)


def test_a_digest_that_is_not_there(database: Database) -> None:
    for call in (blobs.facts, blobs.read):  # `read` says so before the first chunk
        with pytest.raises(NotFoundError, match="no such blob"), database.read() as session:
            call(session, "sha256:" + "0" * 64)


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (-1, 5), (0, -1)])
def test_offsets_below_zero(stored: tuple[Database, str], start: int, stop: int | None) -> None:
    database, digest = stored
    with pytest.raises(RequestError, match=f"allowed are 0 to {len(DATA)}"), database.read() as session:
        blobs.read(session, digest, start, stop)


@pytest.mark.parametrize("position", [0, 1, 3])
def test_a_chunk_that_is_lost(database: Database, position: int) -> None:
    with database.write() as session:
        digest = blobs.add(session, DATA)
        session.execute(delete(BlobChunk).where(BlobChunk.position == position))
    got = b""
    with (
        pytest.raises(StoreError, match=rf"byte {position * CHUNK_BYTES} is missing"),
        database.read() as session,
    ):
        for piece in blobs.read(session, digest):
            got += piece
    assert got == DATA[: position * CHUNK_BYTES]
