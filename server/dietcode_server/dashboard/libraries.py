"""Published libraries: by name, by version, and all that one version is."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from dietcode.errors import DietCodeError, LibraryError, SpecError
from dietcode.protocol import LibraryInfo
from dietcode.runtime.manifest import REPORT
from dietcode.target.kinds import label_of, requirements_of
from dietcode.trust.envelope import parse_envelope
from dietcode.trust.keys import PublicKey
from dietcode.trust.statements import open_library
from dietcode_server.api.callers import Caller, CallerOf
from dietcode_server.api.names import check_library
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.dashboard.bundle_snippet import bundle_snippet
from dietcode_server.dashboard.graphs import graph_of
from dietcode_server.dashboard.program_view import program_of
from dietcode_server.dashboard.render import is_fragment, page, server_url
from dietcode_server.dashboard.snippet import snippet, variables_of
from dietcode_server.dashboard.structures import file_of, structure_of
from dietcode_server.dashboard.summaries import summaries
from dietcode_server.store import libraries, wire
from dietcode_server.store.comparisons import speed_ups
from dietcode_server.store.library_names import list_names
from dietcode_server.store.signatures import signature
from dietcode_server.store.tables import BUNDLE, LibraryRow, Workload

NUM_ROWS = 50
_MAX_NAME_CHARS = 64
_log = logging.getLogger("dietcode.dashboard")

router = APIRouter(include_in_schema=False)

Search = Annotated[str, Query(max_length=_MAX_NAME_CHARS)]
Yanked = Annotated[bool, Query(description="Yanked versions too.")]
_NO_SNIPPET = (LibraryError, SpecError, KeyError, TypeError, AttributeError, ValueError)


@dataclass(frozen=True)
class SignatureFacts:
    """Facts about a version's signature.

    Attributes
    ----------
    state : str
        Of the key: current, earlier or revoked.
    error : str or None
        Why it could not be verified; None where it was.
    """

    fingerprint: str
    state: str
    issued_at: str
    error: str | None = None


@router.get("/libraries", response_class=HTMLResponse)
def show_libraries(
    request: Request,
    services: ServicesOf,
    q: Search = "",
    after: Search = "",
    yanked: Yanked = False,
) -> Response:
    """Names, each with its newest version; or the list alone for htmx."""
    with services.database.read() as session:
        found, following = list_names(
            session, search=q.strip(), after=after, limit=NUM_ROWS, include_yanked=yanked
        )
        newest = wire.libraries_to_wire(session, [one.newest for one in found])
        counts = [one.num_versions for one in found]
        known = speed_ups(session, [one.newest.id for one in found])
        speeds = [known.get(one.newest.id) for one in found]
        workloads = summaries(session, {one.newest.workload for one in found})
        said = [workloads.get(one.newest.workload) for one in found]
    return page(
        request,
        "_libraries.html" if is_fragment(request) else "libraries.html",
        libraries=list(zip(newest, counts, said, speeds, strict=True)),
        q=q.strip(),
        after=after,
        following=following,
        yanked=yanked,
    )


@router.get("/libraries/{name}", response_class=HTMLResponse)
def show_versions(
    request: Request,
    name: str,
    services: ServicesOf,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
    yanked: Yanked = True,
) -> Response:
    """Versions of one name, the newest first."""
    check_library(name)
    with services.database.read() as session:
        libraries.check_known(session, name)
        rows, following = libraries.list_libraries(
            session, name=name, limit=NUM_ROWS, cursor=cursor, include_yanked=yanked
        )
        versions = wire.libraries_to_wire(session, rows)
    return page(
        request,
        "versions.html",
        name=name,
        versions=versions,
        cursor=cursor,
        following=following,
        yanked=yanked,
    )


@router.get("/libraries/{name}/{version}", response_class=HTMLResponse)
def show_library(
    request: Request, name: str, version: str, services: ServicesOf, caller: CallerOf
) -> Response:
    """The page of a version; ``latest`` is the newest that is not yanked."""
    with services.database.read() as session:
        row = libraries.get(session, *check_library(name, version))
        info, manifest = wire.library_to_wire(session, row), libraries.manifest_bytes(session, row)
        is_bundle = row.kind == BUNDLE
        structure = structure_of(session, row.workload, row) if is_bundle else None
        graph = graph_of(session, row) if is_bundle else None
        program = program_of(session, row.workload, row) if is_bundle else None
        of_bundle = _bundle_example(request, session, row, info) if is_bundle else {}
    signed = _signed(services, info, manifest)
    facts = json.loads(manifest)
    return page(
        request,
        "library.html",
        library=info,
        manifest=facts,
        files=_files(facts, info),
        signed=signed,
        structure=structure,
        graph=graph,
        program=program,
        server=server_url(request),
        with_token=caller.owner != "local",
        why_not=_why_not(caller, info),
        label_of=label_of,
        requirements_of=requirements_of,
        **(of_bundle or _example(request, facts, info)),
    )


@router.get("/libraries/{name}/{version}/snippet", response_class=HTMLResponse)
def show_snippet(request: Request, name: str, version: str, services: ServicesOf) -> Response:
    """The example of a call, for values of the shape variables that the query gives."""
    with services.database.read() as session:
        info, manifest = _found(session, name, version)
    return page(request, "_snippet.html", library=info, **_example(request, json.loads(manifest), info))


def _found(session: Session, name: str, version: str) -> tuple[LibraryInfo, bytes]:
    row = libraries.get(session, *check_library(name, version))
    return wire.library_to_wire(session, row), libraries.manifest_bytes(session, row)


def _example(request: Request, manifest: dict[str, Any], info: LibraryInfo) -> dict[str, Any]:
    """Return the context of ``_snippet.html``; a manifest that describes no call has no example."""
    try:
        variables = variables_of(manifest, request.query_params)
        code = snippet(manifest, variables, f"{info.name}@{info.version}", server_url(request))
    except _NO_SNIPPET:
        return {"variables": [], "code": None}
    return {"variables": variables, "code": code}


def _bundle_example(request: Request, session: Session, row: LibraryRow, info: LibraryInfo) -> dict[str, Any]:
    """Return the context of ``_snippet.html`` of a whole model, recursion or program."""
    workload = session.get_one(Workload, row.workload).spec
    report = file_of(session, row.id, REPORT) or {}
    try:
        num_weights = int(report.get("num_weights", 0))
        ref = f"{info.name}@{info.version}"
        code = bundle_snippet(workload, num_weights, info.name, ref, server_url(request))
    except _NO_SNIPPET:
        return {"variables": [], "code": None}
    return {"variables": [], "code": code}


def _files(manifest: dict[str, Any], info: LibraryInfo) -> list[tuple[str, int, str, str]]:
    """Name, size, digest and address of each file."""
    own = f"/api/v1/libraries/{info.name}/{info.version}"
    found = [("manifest.json", info.manifest.size_bytes, info.manifest.sha256, own)]
    listed = dict(manifest.get("files") or {})
    if manifest.get("runtime"):
        listed["TVM runtime"] = manifest["runtime"]
    for name, facts in listed.items():
        found.append((name, facts["bytes"], facts["sha256"], f"/api/v1/blobs/{facts['sha256']}"))
    return found


def _signed(services: Services, info: LibraryInfo, manifest: bytes) -> SignatureFacts:
    """Verify the signature as a client does, with the server's own keys."""
    what = f"{info.name}@{info.version}"
    try:
        envelope, _ = signature(services.database, services.keys, info.name, info.version)
        keys = {key.fingerprint: key for key in services.keys.public().keys}
    except DietCodeError as error:
        _log.error("signature of %s: %s", what, error)
        return SignatureFacts("", "", "", "the server cannot sign now; its log says why")
    found = parse_envelope(envelope, what)
    key = keys[found.keyid]
    try:
        statement = open_library(found, PublicKey.from_pem(key.public_key), manifest, what)
    except DietCodeError as error:
        return SignatureFacts(key.fingerprint, key.state, "", str(error))
    return SignatureFacts(key.fingerprint, key.state, statement.issued_at)


def _why_not(caller: Caller, info: LibraryInfo) -> str | None:
    """Return why a caller may not yank it; None where it may."""
    if caller.is_admin:
        return None
    if "publish" not in caller.scopes:
        return f"needs a token with publish; yours has {', '.join(sorted(caller.scopes))}"
    if info.owner not in (None, caller.owner):
        return f"belongs to {info.owner}; only its owner or an admin yanks it"
    return None
