"""Blobs, content by digest: whole, or one range of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from dietcode_server.api.lanes import Lane, Turns
from dietcode_server.api.names import check_digest
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.ranges import etag, is_known, range_of
from dietcode_server.api.services import ServicesOf
from dietcode_server.store import blobs
from dietcode_server.store.chunks import ChunkCache
from dietcode_server.store.database import Database

IMMUTABLE = "public, max-age=31536000, immutable"
_BYTES = "application/octet-stream"
_SLICE_BYTES = 128 << 10  # what each download has in memory of its own
_downloads = Lane("downloads", num_threads=4)
_slices = Turns("slices", num_steps=2, pause_secs=0.003)

router = APIRouter(prefix="/api/v1/blobs", tags=["libraries"])
_RESPONSES = {
    200: shows("(bytes)", _BYTES, "All of it; ETag is the digest."),
    206: shows("(bytes)", _BYTES, "The range that was asked for, as Content-Range says."),
    304: {"description": "If-None-Match names this digest."},
    **problems(404, 416, 422),
}


@router.get("/{digest}", summary="Download a blob", response_class=Response, responses=_RESPONSES)
def download_blob(digest: str, request: Request, services: ServicesOf) -> Response:
    """Supports Range (a single one), If-Range and If-None-Match."""
    size, headers = _facts(services.database, digest)
    if is_known(request.headers, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    requested = range_of(request.headers, size, headers["ETag"])
    start, stop = requested or (0, size)
    headers["Content-Length"] = str(stop - start)
    if requested is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    content = _content(services.chunks, digest, start, stop)
    return StreamingResponse(content, 200 if requested is None else 206, headers, media_type=_BYTES)


@router.head("/{digest}", summary="Size of a blob", response_class=Response, responses=_RESPONSES)
def head_blob(digest: str, request: Request, services: ServicesOf) -> Response:
    """The headers of the whole blob, without its bytes."""
    size, headers = _facts(services.database, digest)
    if is_known(request.headers, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(headers=headers | {"Content-Length": str(size)}, media_type=_BYTES)


def _facts(database: Database, digest: str) -> tuple[int, dict[str, str]]:
    with database.read() as session:
        size = blobs.facts(session, check_digest(digest)).size_bytes
    return size, {"ETag": etag(digest), "Accept-Ranges": "bytes", "Cache-Control": IMMUTABLE}


async def _content(chunks: ChunkCache, digest: str, start: int, stop: int) -> AsyncIterator[bytes]:
    """Slices of chunks; between two of them a slow client holds no connection and no thread."""
    while start < stop:
        position, offset = divmod(start, blobs.CHUNK_BYTES)
        await _slices.wait()
        chunk = chunks.kept(digest, position)
        if chunk is None:
            chunk = await _downloads.run(chunks.read, digest, position)
        data = chunk[offset : offset + min(_SLICE_BYTES, stop - start)]
        yield data
        start += len(data)
