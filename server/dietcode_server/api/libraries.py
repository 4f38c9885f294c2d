"""Published libraries: what there is, and their manifests byte for byte."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from dietcode.protocol import LibraryInfo, LibraryPage
from dietcode_server.api import examples
from dietcode_server.api.blobs import IMMUTABLE
from dietcode_server.api.jobs import Cursor, Limit, NameFilter
from dietcode_server.api.names import check_library
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.ranges import etag, is_known
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.store import libraries, wire

router = APIRouter(prefix="/api/v1/libraries", tags=["libraries"])
_PAGE = shows(examples.LIBRARY_PAGE)


def _page(services: Services, name: str | None, limit: int, cursor: str | None) -> LibraryPage:
    with services.database.read() as session:
        rows, following = libraries.list_libraries(session, name=name, limit=limit, cursor=cursor)
        return LibraryPage(libraries=[wire.library_to_wire(session, row) for row in rows], next=following)


@router.get("", summary="List libraries, newest first", responses={200: _PAGE, **problems(422)})
def list_libraries(
    services: ServicesOf, name: NameFilter = None, limit: Limit = 50, cursor: Cursor = None
) -> LibraryPage:
    """All versions of all names, or of one."""
    return _page(services, name, limit, cursor)


@router.get("/{name}", summary="List versions of a library", responses={200: _PAGE, **problems(404, 422)})
def list_versions(name: str, services: ServicesOf, limit: Limit = 50, cursor: Cursor = None) -> LibraryPage:
    """Newest first."""
    check_library(name)
    with services.database.read() as session:
        libraries.get(session, name)  # a name that was never published is not found
    return _page(services, name, limit, cursor)


@router.get(
    "/{name}/{version}",
    summary="Read a manifest",
    response_class=Response,
    responses={
        200: shows(
            examples.MANIFEST,
            description="manifest.json, byte for byte. ETag and DietCode-Manifest are its digest, "
            "DietCode-Version is the version.",
        ),
        304: {"description": "If-None-Match names this digest."},
        **problems(404, 422),
    },
)
def read_manifest(name: str, version: str, request: Request, services: ServicesOf) -> Response:
    """`version` is a number or `latest`; a number always gives the same bytes."""
    with services.database.read() as session:
        row = libraries.get(session, *check_library(name, version))
        digest, found = row.manifest_digest, row.version
        body = libraries.manifest_bytes(session, row)
    headers = {
        "ETag": etag(digest),
        "Cache-Control": "no-cache" if version == "latest" else IMMUTABLE,
        "DietCode-Version": str(found),
        "DietCode-Manifest": digest,
    }
    if is_known(request.headers, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@router.get(
    "/{name}/{version}/info",
    summary="Look at a library",
    responses={200: shows(examples.LIBRARY), **problems(404, 422)},
)
def show_library(name: str, version: str, services: ServicesOf) -> LibraryInfo:
    """What it was built for, by which job, and how large it is."""
    with services.database.read() as session:
        return wire.library_to_wire(session, libraries.get(session, *check_library(name, version)))
