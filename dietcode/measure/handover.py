"""Files between a process and its confined children, which see one folder: copies, in both directions."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

from dietcode.confinement.left import open_left
from dietcode.measure.requests import BuildResult

NO_ANSWER = "the process gave an answer of another kind"


class Handover:
    """Copies of code in the folder of the children.

    What a child wrote is copied as it is at that moment, and only where it is a file: not what a link names.

    Attributes
    ----------
    folder : Path
        The one that the children can write to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._numbers = folder, itertools.count()
        self._shown: dict[str, tuple[tuple[int, int, int], Path]] = {}

    def new_path(self, path: str) -> str:
        """Return where a child writes what is wanted at a path."""
        return str(self.folder / f"{next(self._numbers)}-{Path(path).name}")

    def taken(self, result: object, written: str, path: str) -> BuildResult:
        """Return the result of a build whose code is at its path now."""
        if not isinstance(result, BuildResult):
            return BuildResult.failed(NO_ANSWER)
        if result.path is None:
            return result
        try:
            with open_left(Path(written)) as source, Path(path).open("wb") as target:
                shutil.copyfileobj(source, target)
            Path(written).unlink()
        except OSError as error:
            return BuildResult.failed(f"the build left no file: {error.strerror}")
        return replace(result, path=path)

    def shown(self, path: str) -> str:
        """Return where the children see a file; the path itself where there is none, which they say."""
        try:
            found = Path(path).stat()
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            known = self._shown.get(path)
            if known is not None and known[0] == version and known[1].exists():
                return str(known[1])
            self.forget(path)
            copy = Path(self.new_path(path))  # another name: the one before may be loaded
            with Path(path).open("rb") as source, copy.open("xb") as target:  # through no link of a child's
                shutil.copyfileobj(source, target)
        except OSError:
            return path
        self._shown[path] = version, copy
        return str(copy)

    def forget(self, path: str) -> None:
        """Remove the copy; what is loaded of it stays."""
        known = self._shown.pop(path, None)
        if known is not None:
            with contextlib.suppress(OSError):
                known[1].unlink()
