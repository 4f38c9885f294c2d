"""Content by digest: whole, or one range of it."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from dietcode_server.api.names import check_digest
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.ranges import etag, is_known, range_of
from dietcode_server.api.services import ServicesOf
from dietcode_server.store import blobs
from dietcode_server.store.database import Database

IMMUTABLE = "public, max-age=31536000, immutable"
_BYTES = "application/octet-stream"

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
    asked = range_of(request.headers, size, headers["ETag"])
    start, stop = asked or (0, size)
    headers["Content-Length"] = str(stop - start)
    if asked is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    content = _content(services.database, digest, start, stop)
    return StreamingResponse(content, 200 if asked is None else 206, headers, media_type=_BYTES)


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


def _content(database: Database, digest: str, start: int, stop: int) -> Iterator[bytes]:
    """A session for each chunk: a slow client keeps no connection, nor an old state of the database, open."""
    while start < stop:
        end = min(stop, (start // blobs.CHUNK_BYTES + 1) * blobs.CHUNK_BYTES)
        with database.read() as session:
            data = b"".join(blobs.read(session, digest, start, end))
        yield data
        start = end
