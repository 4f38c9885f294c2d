"""Scripts and styles, under a path that changes with their bytes, so that browsers keep them forever.

`vendored/` holds other projects' files as they published them; their versions are in their names.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from dietcode_server.api.problems import Refusal

PREFIX = "/static/"

router = APIRouter(include_in_schema=False)
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "txt": "text/plain"}


def url(name: str) -> str:
    """Return the URL of a file of this folder.

    Raises
    ------
    KeyError
        There is no file of this name.
    """
    if name not in _contents():
        raise KeyError(name)
    return f"{PREFIX}{_digest()}/{name}"


@router.get(PREFIX + "{digest}/{name:path}")
async def show_static(digest: str, name: str, request: Request) -> Response:
    """Send a file, compressed if the browser accepts that."""
    found = _contents().get(name)
    if found is None:
        raise Refusal("not-found", 404, f"{request.url.path}: no such file")
    current = digest == _digest()
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if current else "no-cache",
        "Vary": "Accept-Encoding",
    }
    plain, packed = found
    takes_gzip = "gzip" in request.headers.get("accept-encoding", "")
    if takes_gzip:
        headers["Content-Encoding"] = "gzip"
    media_type = _TYPES[name.rpartition(".")[2]]
    return Response(packed if takes_gzip else plain, media_type=media_type, headers=headers)


@cache
def _contents() -> dict[str, tuple[bytes, bytes]]:
    """Return every file by its path below this folder: as it is, and compressed."""
    folder = Path(__file__).parent
    found = sorted(path for path in folder.rglob("*") if path.suffix.removeprefix(".") in _TYPES)
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
    return {name: (data, gzip.compress(data, 9, mtime=0)) for name, data in contents.items()}


@cache
def _digest() -> str:
    """Return the digest of all files together: modules import each other by relative paths."""
    digest = hashlib.sha256()
    for name, (data, _) in _contents().items():
        digest.update(b"%s %d\n" % (name.encode(), len(data)))
        digest.update(data)
    return digest.hexdigest()[:12]
