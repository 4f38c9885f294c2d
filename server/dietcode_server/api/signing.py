"""Signatures of libraries, and the keys that made them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from dietcode.protocol import KeyList
from dietcode_server.api import examples
from dietcode_server.api.names import check_library
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.services import ServicesOf
from dietcode_server.store.provenance import provenance
from dietcode_server.store.signatures import latest, signature

router = APIRouter(prefix="/api/v1", tags=["libraries"])


@router.get(
    "/libraries/{name}/{version}/signature",
    summary="Read a signature",
    response_class=Response,
    responses={
        200: shows(
            examples.ENVELOPE,
            description="A DSSE envelope in canonical JSON. Its payload says name, version, and digest and "
            "size of manifest.json. DietCode-Version is the version.",
        ),
        **problems(404, 422),
    },
)
def read_signature(name: str, version: str, services: ServicesOf) -> Response:
    """`version` is a number or `latest`; signed by the current key, anew when that changes."""
    body, found = signature(services.database, services.keys, *check_library(name, version))
    headers = {"Cache-Control": "no-cache", "DietCode-Version": str(found)}
    return Response(body, headers=headers, media_type="application/json")


@router.get(
    "/libraries/{name}/{version}/provenance",
    summary="Read where a library comes from",
    response_class=Response,
    responses={
        200: shows(
            examples.PROVENANCE,
            description="A DSSE envelope in canonical JSON. Its payload is an in-toto statement with SLSA's "
            "provenance: digests of all files, of workload, spec and records, versions, the builder.",
        ),
        **problems(404, 422),
    },
)
def read_provenance(name: str, version: str, services: ServicesOf) -> Response:
    """`version` is a number or `latest`; signed by the current key for each request."""
    body, found = provenance(services.database, services.keys, *check_library(name, version))
    headers = {"Cache-Control": "no-cache", "DietCode-Version": str(found)}
    return Response(body, headers=headers, media_type="application/json")


@router.get(
    "/libraries/{name}/head",
    summary="Read which version is the latest",
    response_class=Response,
    responses={
        200: shows(
            examples.ENVELOPE,
            description="A DSSE envelope in canonical JSON. Its payload says name, version, and a sequence "
            "number that grows with each version that is published, yanked or taken "
            "back; and when it expires.",
        ),
        **problems(404, 422),
    },
)
def read_head(name: str, services: ServicesOf) -> Response:
    """Signed for each request, so that nobody can pass off an older answer as the latest for long."""
    body = latest(services.database, services.keys, check_library(name)[0], services.settings.head_lasts_secs)
    return Response(body, headers={"Cache-Control": "no-cache"}, media_type="application/json")


@router.get("/keys", summary="List the server's keys", responses={200: shows(examples.KEYS), **problems()})
def list_keys(services: ServicesOf) -> KeyList:
    """The one that signs, those before it, and how one followed another; compare fingerprints elsewhere."""
    return services.keys.public()
