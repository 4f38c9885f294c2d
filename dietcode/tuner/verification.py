"""Running a finished library before it is written."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dietcode.backends.protocol import Backend
from dietcode.errors import TuningError
from dietcode.library.parts import Parts
from dietcode.measure.children import Children
from dietcode.measure.requests import CheckRequest
from dietcode.runtime.manifest import CODE
from dietcode.tuner.events import Event, Listener

_NUM_VERIFIED = 8
_TIMEOUT_SECS = 300.0


def verify(
    parts: Parts, files: Mapping[str, bytes], backend: Backend, children: Children, listener: Listener
) -> None:
    """Run a finished library on sampled instances against float64, where it is measured.

    Parameters
    ----------
    files : mapping of str to bytes
        The library's files by relative path.

    Raises
    ------
    TuningError
        It gives a wrong result; nothing is written then.
    """
    task, columns = parts.task, parts.task.instances.columns()
    call = backend.library_call(parts, files)
    picked = np.unique(np.linspace(0, len(task.instances) - 1, _NUM_VERIFIED).astype(int))
    with tempfile.TemporaryDirectory(prefix="dietcode-") as temporary:
        path = Path(temporary) / CODE
        path.write_bytes(files[CODE])
        for row in picked:
            binding = {name: int(values[row]) for name, values in columns.items()}
            point = {index: int(values[row]) for index, values in task.extents.items()}
            own = tuple(binding[name] for name in task.variables)
            request = CheckRequest(task.problem, str(path), call, (point,), (own,), int(row))
            error = children.check(request, _TIMEOUT_SECS).error
            if error is not None:
                raise TuningError(f"the finished library fails at {binding}: {error}")
    listener(Event("verify", f"right on {len(picked)} instances against float64", len(picked), len(picked)))
