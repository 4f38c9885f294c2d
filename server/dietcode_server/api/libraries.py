"""Published libraries: what there is, and their manifests byte for byte."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from dietcode.errors import RequestError
from dietcode.protocol import LibraryComparison, LibraryInfo, LibraryPage
from dietcode_server.api import examples
from dietcode_server.api.blobs import IMMUTABLE
from dietcode_server.api.callers import Caller, CallerOf
from dietcode_server.api.jobs import Cursor, Limit, NameFilter
from dietcode_server.api.names import LATEST, check_library
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.ranges import etag, is_known
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.store import comparisons, libraries, wire

router = APIRouter(prefix="/api/v1/libraries", tags=["libraries"])
_PAGE = shows(examples.LIBRARY_PAGE)
_YANKED = {200: shows(examples.LIBRARY), **problems(404, 413, 415, 422)}
IncludeYanked = Annotated[bool, Query(description="Yanked versions too.")]


def _page(
    services: Services, name: str | None, limit: int, cursor: str | None, include_yanked: bool
) -> LibraryPage:
    with services.database.read() as session:
        rows, following = libraries.list_libraries(
            session, name=name, limit=limit, cursor=cursor, include_yanked=include_yanked
        )
        return LibraryPage(libraries=wire.libraries_to_wire(session, rows), next=following)


@router.get("", summary="List libraries, newest first", responses={200: _PAGE, **problems(422)})
def list_libraries(
    services: ServicesOf,
    name: NameFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_yanked: IncludeYanked = False,
) -> LibraryPage:
    """All versions of all names, or of one."""
    return _page(services, name, limit, cursor, include_yanked)


@router.get("/{name}", summary="List versions of a library", responses={200: _PAGE, **problems(404, 422)})
def list_versions(
    name: str,
    services: ServicesOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_yanked: IncludeYanked = False,
) -> LibraryPage:
    """Newest first."""
    check_library(name)
    with services.database.read() as session:
        libraries.check_known(session, name)
    return _page(services, name, limit, cursor, include_yanked)


@router.get(
    "/{name}/{version}",
    summary="Read a manifest",
    response_class=Response,
    responses={
        200: shows(
            examples.MANIFEST,
            description="manifest.json, byte for byte. ETag and DietCode-Manifest are its digest, "
            "DietCode-Version is the version; a yanked one has DietCode-Yanked, which says since when.",
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
    fixed = version != LATEST and row.yanked_at is None
    headers = {
        "ETag": etag(digest),
        "Cache-Control": IMMUTABLE if fixed else "no-cache",
        "DietCode-Version": str(found),
        "DietCode-Manifest": digest,
    }
    if row.yanked_at is not None:
        headers["DietCode-Yanked"] = row.yanked_at.isoformat(timespec="seconds")
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


@router.get(
    "/{name}/{version}/comparison",
    summary="Compare a library with the vendor's kernels",
    responses={200: shows(examples.COMPARISON), **problems(404, 422)},
)
def compare_library(name: str, version: str, services: ServicesOf) -> LibraryComparison:
    """What the server measured before it published the version: no instances where it measured none."""
    with services.database.read() as session:
        row = libraries.get(session, *check_library(name, version))
        found = comparisons.instances_of(session, row.id)
        instances = [wire.compared_to_wire(compared, instance) for compared, instance in found]
        return LibraryComparison(name=row.name, version=row.version, instances=instances)


@router.post("/{name}/{version}/yank", summary="Yank a version", responses=_YANKED)
def yank_library(name: str, version: str, services: ServicesOf, caller: CallerOf) -> LibraryInfo:
    """Out of lists and out of `latest`; who names it exactly still gets it, with a warning."""
    return _yank(services, caller, name, version, undo=False)


@router.post("/{name}/{version}/unyank", summary="Take a yank back", responses=_YANKED)
def unyank_library(name: str, version: str, services: ServicesOf, caller: CallerOf) -> LibraryInfo:
    """Into lists again, and `latest` where it is the newest."""
    return _yank(services, caller, name, version, undo=True)


def _yank(services: Services, caller: Caller, name: str, version: str, undo: bool) -> LibraryInfo:
    name, number = check_library(name, version)
    if number is None:
        raise RequestError("version: given latest; allowed: the number of one version")
    with services.database.write() as session:
        libraries.get(session, name, number)
        caller.need_name(session, name)
        return wire.library_to_wire(session, libraries.yank(session, name, number, undo=undo))
