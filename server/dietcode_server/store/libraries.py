"""Published libraries: immutable versions of a name, with their files and the reasons for their dispatch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select
from sqlalchemy.orm import Session, defer

from dietcode.errors import LibraryError, NotFoundError
from dietcode.runtime.manifest import (
    BLOBS,
    CODE,
    DISPATCH,
    FILES,
    MANIFEST,
    REPORT,
    as_published,
    blob_name,
    file_facts,
)
from dietcode.target.kinds import kind_of_target
from dietcode.workload.text import clip, one_line
from dietcode_server.store import blobs
from dietcode_server.store.explained import explained_rows
from dietcode_server.store.locks import one_at_a_time
from dietcode_server.store.owners import advance, check_name, claim_name
from dietcode_server.store.paging import find_page
from dietcode_server.store.subjects import remember_workload, utc_now
from dietcode_server.store.tables import (
    BUNDLE,
    LIBRARY,
    PART,
    JobRow,
    LibraryFile,
    LibraryRow,
    NameRow,
)

_MAX_NAMED = 10
_MAX_VERSION = (1 << 31) - 1


def publish(
    session: Session,
    *,
    job: JobRow | None,
    device_name: str,
    files: Mapping[str, bytes],
    part: str | None = None,
) -> LibraryRow:
    """Publish a library as the next version of its name, all of it or nothing.

    What is the newest version already, byte for byte, stays that version.

    Parameters
    ----------
    job : JobRow or None
        The job that made it.
    device_name : str
        What it was measured on.
    files : mapping of str to bytes
        Content by relative path, as `dietcode.library.build.library_files` gives it; the manifest that is
        kept says that a signature goes with it.
    part : str, optional
        Of a part of models the name, which is the server's own.

    Raises
    ------
    LibraryError
        The files do not fit the manifest, or each other; the name is somebody else's by now; or of a library
        for GPUs: it holds no machine code, or no device measured it.
    """
    manifest, report, dispatch = (_json(files, name) for name in (MANIFEST, REPORT, DISPATCH))
    if part is not None:
        manifest["name"] = part
    files = {**files, MANIFEST: as_published(manifest)}
    owner = None if part is not None else job
    one_at_a_time(session, "publish")
    try:
        _check_files(files, manifest)
        kind_of_target(manifest["target"]).check_library(files[CODE], manifest, report)
        check_name(session, manifest["name"], owner)
        newest = _newest(session, manifest["name"])
        digest = file_facts(files[MANIFEST])["sha256"]
        if newest is not None and newest.yanked_at is None and newest.manifest_digest == digest:
            return newest
        explained = explained_rows(manifest, report, dispatch)
        row = LibraryRow(
            name=manifest["name"],
            version=1 if newest is None else newest.version + 1,
            kind=LIBRARY if part is None else PART,
            job_id=None if job is None else job.id,
            workload=manifest["workload_digest"],
            device=device_name,
            target=manifest["target"],
            dispatch_rule=dispatch["rule"],
            num_micro_kernels=len(dispatch["categories"]),
            size_bytes=sum(len(files[name]) for name in (MANIFEST, *FILES)),
            created_at=utc_now(),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise LibraryError(f"the library cannot be published: {one_line(what)}") from error
    with session.begin_nested():  # so that a caller who goes on after an error commits no half of it
        remember_workload(session, row.workload, manifest["workload"], row.created_at)
        _insert(session, row, owner, files, explained)
    return row


def publish_bundle(
    session: Session,
    *,
    job: JobRow,
    device_name: str,
    files: Mapping[str, bytes],
    parts: Sequence[LibraryRow],
) -> LibraryRow:
    """Publish a model as the next version of its name.

    Parameters
    ----------
    job : JobRow
        The job that made it.
    device_name : str
        What its parts were measured on.
    files : mapping of str to bytes
        Its manifest, and the files that it lists; the manifest that is kept says that a signature goes with
        it.
    parts : sequence of LibraryRow
        The libraries that it names.

    Raises
    ------
    LibraryError
        The name is somebody else's by now.
    """
    files = {**files, MANIFEST: as_published(_json(files, MANIFEST))}
    one_at_a_time(session, "publish")
    check_name(session, job.name, job)
    newest = _newest(session, job.name)
    digest = file_facts(files[MANIFEST])["sha256"]
    if newest is not None and newest.yanked_at is None and newest.manifest_digest == digest:
        return newest
    row = LibraryRow(
        name=job.name,
        version=1 if newest is None else newest.version + 1,
        kind=BUNDLE,
        job_id=job.id,
        workload=job.workload,
        device=device_name,
        target=job.target,
        dispatch_rule={},
        num_micro_kernels=sum(part.num_micro_kernels for part in parts),
        size_bytes=sum(map(len, files.values())) + sum(part.size_bytes for part in parts),
        created_at=utc_now(),
    )
    with session.begin_nested():
        _insert(session, row, job, files, {})
    return row


def get(session: Session, name: str, version: int | None = None) -> LibraryRow:
    """One version of a library; without `version` the newest that is not yanked.

    Raises
    ------
    NotFoundError
        There is no such version; names what there is.
    """
    newest = _newest(session, name)
    if newest is None:
        raise _no_such_library(session, name)
    if version is None:
        latest = (
            newest if newest.yanked_at is None else _newest(session, name, LibraryRow.yanked_at.is_(None))
        )
        if latest is None:
            raise NotFoundError(
                f"{name}: all its versions are yanked; name one exactly, as in {name}@{newest.version}"
            )
        return latest
    if version == newest.version:
        return newest
    row = None
    if 1 <= version <= _MAX_VERSION:
        of_version = (LibraryRow.name == name, LibraryRow.version == version)
        row = session.scalar(select(LibraryRow).where(*of_version))
    if row is None:
        there = f"there are 1 to {newest.version}" if newest.version > 1 else "there is 1"
        raise NotFoundError(f"{name}@{one_line(str(version), 20)}: no such version; {there}")
    return row


def latest(session: Session, name: str) -> tuple[int, int]:
    """The newest version that is not yanked, and how often that may have changed: see `NameRow.sequence`.

    Raises
    ------
    NotFoundError
        There is no such version.
    """
    version = get(session, name).version
    return version, session.execute(select(NameRow.sequence).where(NameRow.name == name)).scalar_one()


def check_known(session: Session, name: str) -> None:
    """Check that a version of a name was published, yanked or not.

    Raises
    ------
    NotFoundError
        None was.
    """
    if _newest(session, name) is None:
        raise _no_such_library(session, name)


def yank(
    session: Session, name: str, version: int, *, undo: bool = False, now: datetime | None = None
) -> LibraryRow:
    """Take a version out of lists and out of ``latest``, or back; who names it exactly still gets it.

    Parameters
    ----------
    undo : bool
        Take it back.
    now : datetime or None
        By default the database's time.

    Raises
    ------
    NotFoundError
        There is no such version.
    """
    row = get(session, name, version)
    if (row.yanked_at is None) != undo:
        row.yanked_at = None if undo else now or utc_now()
        advance(session, name)
    session.flush()
    return row


def list_libraries(
    session: Session,
    *,
    name: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    include_yanked: bool = False,
) -> tuple[list[LibraryRow], str | None]:
    """Return a page of published versions, newest first, and the next page's cursor; None after the last.

    Parameters
    ----------
    name : str or None
        Versions of this name only; without it, parts of models are left out.
    limit : int
        Most versions of a page.
    cursor : str or None
        That of the page before.
    include_yanked : bool

    Raises
    ------
    RequestError
        `limit` is out of range, or `cursor` is not from an earlier page.
    """
    wanted: list[ColumnElement[bool]] = []
    if not include_yanked:
        wanted.append(LibraryRow.yanked_at.is_(None))
    wanted.append(LibraryRow.kind != PART if name is None else LibraryRow.name == name)
    query = select(LibraryRow).options(defer(LibraryRow.dispatch_rule))  # it can have a thousand leaves
    page = find_page(session, query, LibraryRow, [wanted], limit, cursor)
    return page.rows, page.next


def manifest_bytes(session: Session, row: LibraryRow) -> bytes:
    """The manifest, byte for byte as it was published."""
    return b"".join(blobs.read(session, row.manifest_digest))


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        data = json.loads(files[name])
    except (KeyError, ValueError, RecursionError) as error:
        raise LibraryError(
            f"{name}: missing, or not JSON; a library cannot be published without it"
        ) from error
    if not isinstance(data, dict):
        raise LibraryError(f"{name}: not a JSON object")
    return data


def _check_files(files: Mapping[str, bytes], manifest: dict[str, Any]) -> None:
    """Check that the files are those of the manifest, each by its digest.

    Raises
    ------
    LibraryError
        One is missing, altered or not listed.
    """
    runtime = manifest["runtime"]  # of an older library; empty since
    listed = {**manifest["files"]}
    if runtime:
        listed[f"{BLOBS}/{blob_name(runtime['sha256'])}"] = runtime
    if set(manifest["files"]) != set(FILES):
        raise LibraryError(f"{MANIFEST}: must list {', '.join(FILES)}")
    for name in sorted({*listed, *files} - {MANIFEST}):
        if name not in listed:
            raise LibraryError(f"{clip(name)}: the manifest does not list it")
        if name not in files:
            raise LibraryError(f"{name}: missing, but the manifest lists it")
        if file_facts(files[name]) != listed[name]:
            raise LibraryError(f"{name}: not what the manifest lists; it was altered")


def _newest(session: Session, name: str, *conditions: ColumnElement[bool]) -> LibraryRow | None:
    newest = (
        select(func.max(LibraryRow.version)).where(LibraryRow.name == name, *conditions).scalar_subquery()
    )
    return session.scalar(select(LibraryRow).where(LibraryRow.name == name, LibraryRow.version == newest))


def _no_such_library(session: Session, name: str) -> NotFoundError:
    return NotFoundError(f"{clip(name)}: no such library; {_names(session)}")


def _names(session: Session) -> str:
    query = (
        select(LibraryRow.name)
        .where(LibraryRow.kind != PART)
        .distinct()
        .order_by(LibraryRow.name)
        .limit(_MAX_NAMED + 1)
    )
    names = list(session.scalars(query))
    if not names:
        return "none is published yet"
    more = " and more" if len(names) > _MAX_NAMED else ""
    return f"there are {', '.join(names[:_MAX_NAMED])}{more}"


def _insert(
    session: Session,
    row: LibraryRow,
    owner: JobRow | None,
    files: Mapping[str, bytes],
    explained: dict[type[Any], list[dict[str, Any]]],
) -> None:
    """Enter a version with its files, and its name where that is new, for whose job made it."""
    claim_name(session, row.name, owner, row.created_at)
    advance(session, row.name)
    digests = {path: blobs.add(session, data) for path, data in files.items()}
    row.manifest_digest = digests[MANIFEST]
    session.add(row)
    session.flush()
    session.execute(
        insert(LibraryFile),
        [
            {"library_id": row.id, "path": path, "digest": digests[path], "size_bytes": len(data)}
            for path, data in files.items()
        ],
    )
    for table, rows in explained.items():
        if rows:
            session.execute(insert(table), [{"library_id": row.id, **values} for values in rows])
