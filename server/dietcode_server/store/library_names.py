"""Names of libraries, each with its newest version: a page of them in the order of the alphabet."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.orm import Session, defer

from dietcode_server.store.tables import PART, LibraryRow


@dataclass(frozen=True)
class NamedLibrary:
    """A name.

    Attributes
    ----------
    newest : LibraryRow
        Its newest version, of those that were asked for; without its dispatch rule.
    num_versions : int
        How many of those there are.
    """

    newest: LibraryRow
    num_versions: int


def list_names(
    session: Session,
    *,
    search: str = "",
    after: str = "",
    limit: int = 50,
    include_yanked: bool = False,
) -> tuple[list[NamedLibrary], str | None]:
    """A page of names, and the last of them where more follow, which is `after` of the next page.

    Parts of models, whose names are the server's own, are left out.

    Parameters
    ----------
    search : str
        Only names that hold this text; empty for all.
    after : str
        Only names that come after this one.
    include_yanked : bool
        Whether versions count that were yanked; a name that has no other is left out else.
    """
    name = LibraryRow.name
    wanted: list[ColumnElement[bool]] = [name > _plain(after), LibraryRow.kind != PART]
    if search:
        wanted.append(name.contains(_plain(search).lower(), autoescape=True))
    if not include_yanked:
        wanted.append(LibraryRow.yanked_at.is_(None))
    query = select(name, func.max(LibraryRow.version), func.count()).where(*wanted).group_by(name)
    found = session.execute(query.order_by(name).limit(limit + 1)).all()
    shown = found[:limit]
    newest = select(LibraryRow).options(defer(LibraryRow.dispatch_rule))
    pairs = [(each, version) for each, version, _ in shown]
    rows = {row.name: row for row in session.scalars(newest.where(_is_one_of(pairs)))} if pairs else {}
    names = [NamedLibrary(rows[each], count) for each, _, count in shown]
    return names, names[-1].newest.name if len(found) > limit else None


def _is_one_of(pairs: list[tuple[str, int]]) -> ColumnElement[bool]:
    return tuple_(LibraryRow.name, LibraryRow.version).in_(pairs)


def _plain(text: str) -> str:
    """A text that PostgreSQL takes, too."""
    return text.replace("\0", "?")
