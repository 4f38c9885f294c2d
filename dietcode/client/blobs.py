"""Blobs by content: kept in the cache, downloaded piece by piece, checked before each use.

``blobs/sha256-<hex>`` holds only whole, checked content. What has arrived of a blob waits in
``downloads/`` and is continued by a later try, of this process or another.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from filelock import FileLock
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from dietcode.client.answers import UnreachableError
from dietcode.client.transport import Transport
from dietcode.errors import LibraryError, ServerError
from dietcode.protocol import FileFacts
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import BLOBS, blob_name, sha256_file

TRIES = 5
_FIRST_DELAY_SECS = 0.1
_DELAY_FACTOR = 3.0
_NO_SUCH_RANGE = 416
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")


class BlobCache:
    """The blobs under ``$DIETCODE_CACHE``. Processes may share it."""

    def __init__(self) -> None:
        self._root = cache_dir()

    def path(self, digest: str) -> Path:
        """Return the path of a blob, whether it is cached or not."""
        return self._root / BLOBS / blob_name(digest)

    def read(self, facts: FileFacts) -> bytes | None:
        """Return a blob's content, or None where the cache lacks it; altered content is removed."""
        path = self.path(facts.sha256)
        with reported(path):
            try:
                if path.stat().st_size == facts.size_bytes:
                    data = path.read_bytes()
                    if f"sha256:{hashlib.sha256(data).hexdigest()}" == facts.sha256:
                        return data
                path.unlink(missing_ok=True)
            except FileNotFoundError:
                pass
            return None

    def has(self, facts: FileFacts) -> bool:
        """Return whether the blob is there, with the right content."""
        path = self.path(facts.sha256)
        try:
            return path.stat().st_size == facts.size_bytes and sha256_file(path) == facts.sha256
        except OSError:
            return False

    def add(self, data: bytes) -> FileFacts:
        """Keep content that is in memory already."""
        facts = FileFacts(sha256=f"sha256:{hashlib.sha256(data).hexdigest()}", size_bytes=len(data))
        if not self.has(facts):
            with self._locked(facts) as partial:
                _write(partial, data)
                with reported(partial):
                    partial.replace(self.path(facts.sha256))
        return facts

    def fetch(self, facts: FileFacts, transport: Transport, what: str) -> Path:
        """Return the path of a blob, downloaded where the cache lacks it.

        Parameters
        ----------
        what : str
            Named by errors, like ``bert-dense@3: library.so``.

        Raises
        ------
        NotFoundError
            The server has no such blob.
        LibraryError
            Other bytes arrived, or they cannot be written.
        ServerError
            The server failed, or the connection broke five times; what arrived is kept.
        """
        path = self.path(facts.sha256)
        if self.has(facts):
            return path
        with self._locked(facts) as partial:
            if not self.has(facts):  # another process may have been faster
                _Download(facts, transport, partial, what).run()
                with reported(path):
                    partial.replace(path)
        return path

    @contextmanager
    def _locked(self, facts: FileFacts) -> Iterator[Path]:
        """Hold the lock of one blob; yields the path of its partial content."""
        partial = self._root / "downloads" / f"{blob_name(facts.sha256)}.part"
        with reported(partial):
            _make_private(partial.parent)
            _make_private(self.path(facts.sha256).parent)
            if partial.is_symlink():
                partial.unlink()
            lock = FileLock(partial.with_suffix(".lock"))
            lock.acquire()
        try:
            yield partial
        finally:
            lock.release()


def _make_private(folder: Path) -> None:
    """Make a folder that only this user may write to, or have an own one be so.

    Raises
    ------
    OSError
        Others may write to it, who could lead a download into another file.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to somebody else, or is a link", str(folder))
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(stat.S_IMODE(facts.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))


class _Download:
    """One blob on its way into a partial file."""

    def __init__(self, facts: FileFacts, transport: Transport, partial: Path, what: str) -> None:
        self._facts, self._transport, self._partial, self._what = facts, transport, partial, what

    def run(self) -> None:
        """Fill the partial file until it holds the blob; raises as `BlobCache.fetch`."""
        was_partial = self._size() > 0
        self._receive_all()
        if was_partial and not self._is_right():
            self._discard()  # what an earlier process left was not this blob
            self._receive_all()
        if not self._is_right():
            self._discard()
            raise LibraryError(
                f"{self._what}: other bytes arrived than {self._facts.sha256}; nothing of it is kept"
            )

    def _receive_all(self) -> None:
        if self._facts.size_bytes == 0:
            _write(self._partial, b"")
        tries = Retrying(
            retry=retry_if_exception_type(UnreachableError),
            stop=stop_after_attempt(TRIES),
            wait=wait_exponential(_FIRST_DELAY_SECS, exp_base=_DELAY_FACTOR),
            reraise=True,
        )
        try:
            tries(self._receive_rest)
        except UnreachableError as error:
            raise ServerError(f"{self._what}: {error} ({TRIES} tries; what arrived is kept)") from error

    def _receive_rest(self) -> None:
        if self._size() > self._facts.size_bytes:
            self._discard()
        if self._size() < self._facts.size_bytes:
            self._receive(self._size())

    def _receive(self, start: int) -> None:
        """Add to the partial file what one answer holds."""
        digest = self._facts.sha256
        headers = {"Range": f"bytes={start}-", "If-Range": f'"{digest}"'} if start else {}
        with self._transport.stream(f"/blobs/{digest}", headers, also=_NO_SUCH_RANGE) as response:
            self._save(response, self._first_byte(response, start))
        if self._size() < self._facts.size_bytes:
            raise UnreachableError(f"{self._transport.address.server}: the answer ended early")

    def _first_byte(self, response: httpx2.Response, start: int) -> int:
        """Return the offset in the blob at which an answer begins."""
        if response.status_code == 200:
            return 0
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        size = self._facts.size_bytes
        if (
            response.status_code != 206
            or found is None
            or tuple(map(int, found.groups())) != (start, size - 1, size)
        ):
            self._discard()
            raise UnreachableError(f"{self._what}: asked for bytes from {start} of {size}, given others")
        return start

    def _save(self, response: httpx2.Response, start: int) -> None:
        size = start
        with reported(self._partial, self._discard), self._partial.open("r+b" if start else "wb") as stream:
            stream.seek(start)
            for chunk in response.iter_raw():
                size += len(chunk)
                if size > self._facts.size_bytes:
                    break
                stream.write(chunk)
        if size > self._facts.size_bytes:
            self._discard()
            raise LibraryError(
                f"{self._what}: more bytes arrived than the {self._facts.size_bytes} of the manifest; "
                "nothing of it is kept"
            )

    def _size(self) -> int:
        with reported(self._partial):
            try:
                return self._partial.stat().st_size
            except FileNotFoundError:
                return 0

    def _is_right(self) -> bool:
        with reported(self._partial):
            if self._size() != self._facts.size_bytes or sha256_file(self._partial) != self._facts.sha256:
                return False
            with self._partial.open("rb") as stream:
                os.fsync(stream.fileno())
            return True

    def _discard(self) -> None:
        with reported(self._partial):
            self._partial.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Write a whole file to the disk, or nothing."""
    with reported(path, lambda: path.unlink(missing_ok=True)), path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def reported(path: Path, clean_up: Callable[[], None] | None = None) -> Iterator[None]:
    """Turn an error of the file system, a full disk for instance, into one line."""
    try:
        yield
    except OSError as error:
        if clean_up is not None:
            clean_up()
        raise LibraryError(
            f"{path}: cannot be kept: {error.strerror or error}; see DIETCODE_CACHE"
        ) from error
