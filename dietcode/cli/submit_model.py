"""``dietcode submit`` of a model, recursion or program: its graphs travel, its weights stay here."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietcode.cli.compile import (
    StructureOptions,
    check_options,
    is_object_of_file,
    label_of,
    read_ranges,
    stem_of,
)
from dietcode.errors import DietCodeError, RequestError

if TYPE_CHECKING:
    from dietcode.graph.model_request import Content, ModelRequest

SUFFIX = ".pt2"


def is_model(path: Path) -> bool:
    """Whether what is submitted is a model, a recursion or a program, not a spec."""
    return path.suffix == SUFFIX or is_object_of_file(path)


@dataclass(frozen=True)
class PreparedModel:
    """A model that was read here.

    Attributes
    ----------
    request : ModelRequest
        What is sent.
    staged, weights : Path or None
        A file of its weights, and what it is called once the server has taken the model; None where there
        are no weights, or the file is there already.
    """

    request: ModelRequest
    staged: Path | None
    weights: Path | None

    def keep_weights(self) -> None:
        """Give the file of weights its name."""
        if self.staged is not None and self.weights is not None:
            self.staged.replace(self.weights)

    def discard(self) -> None:
        """Remove what has no name yet."""
        if self.staged is not None:
            self.staged.unlink(missing_ok=True)


def prepare_model(
    path: Path,
    *,
    name: str | None,
    ranges: Sequence[str],
    trials: int | None,
    seconds: float | None,
    weights: Path | None,
    structures: StructureOptions,
) -> PreparedModel:
    """Read a program of torch.export, or an object of a Python file, and write its weights beside it.

    Parameters
    ----------
    name : str or None
        Of the model; by default that of the file.
    ranges : sequence of str
        As ``L=1..512``.
    trials, seconds
        The budget of each part, where it is not the default.
    weights : Path or None
        Where the weights go; by default the model's file with the suffix ``.safetensors``.
    structures : StructureOptions
        Of a recursion or program.

    Raises
    ------
    ModelError
        The model cannot be compiled.
    RequestError
        PyTorch is missing, an option is wrong, or a file with other content is where the weights go.
    """
    from dietcode.extras import MissingExtraError, what_to_install
    from dietcode.graph.model_request import kind_of_content, model_from_data
    from dietcode.lean import has_torch

    wanted, is_object = read_ranges(ranges), is_object_of_file(path)
    check_options(is_object, bool(wanted), structures)
    if not has_torch():
        what = "reading a recursion or a program" if is_object else "reading a program of torch.export"
        raise MissingExtraError(what_to_install(what, "models", ("torch",)))
    stem = stem_of(path)
    label = label_of(name or stem)
    content: Content
    if is_object:
        from dietcode.programs.reader import read_object

        content, values = read_object(str(path), label, *structures)
    else:
        from dietcode.models.importing.reader import read_model

        content, values = read_model(path, label, wanted)
    given = {key: value for key, value in (("trials", trials), ("seconds", seconds)) if value is not None}
    request = model_from_data({kind_of_content(content): content.to_json(), "budget": given})
    staged, kept = _staged(values, weights or path.with_name(f"{stem}.safetensors"))
    return PreparedModel(request, staged, kept)


def _staged(values: dict[str, Any], path: Path) -> tuple[Path | None, Path | None]:
    """Write weights to a file without a name yet; neither where they are there already."""
    if not values:
        return None, None
    import numpy as np
    from safetensors.numpy import save_file

    from dietcode.runtime.manifest import sha256_file

    try:
        staged = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        staged.touch()
        mode = staged.stat().st_mode  # the rights that new files get; save_file gives others none
        save_file({key: np.asarray(one, order="C") for key, one in values.items()}, staged)
        staged.chmod(mode)
        if not path.exists():
            return staged, path
        is_same = sha256_file(path) == sha256_file(staged)
        staged.unlink()
    except OSError as error:
        raise DietCodeError(
            f"{path}: cannot be written: {error.strerror or error}; --weights FILE names another file"
        ) from error
    if not is_same:
        raise RequestError(
            f"{path}: is there already with other content; remove it, or give --weights FILE for the "
            "weights of this model"
        )
    return None, path
