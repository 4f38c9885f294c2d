"""Whether the command ``dietcode`` of this environment is ours; another project has one too."""

from __future__ import annotations

import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from dietcode.errors import RequestError
from dietcode.extras import DISTRIBUTION, reinstall_command

OTHER = "dietcode"  # a distribution of the index, by the name of our command; ours is `DISTRIBUTION`


def check_command_owner() -> None:
    """Refuse to begin where that other distribution was installed over the command.

    Raises
    ------
    RequestError
        It is there, and the script ``dietcode`` beside this interpreter does not start us.
    """
    try:
        other = distribution(OTHER)
    except PackageNotFoundError:
        return
    script = Path(sysconfig.get_path("scripts")) / "dietcode"
    if not script.is_file() or b"dietcode.cli" in script.read_bytes():
        return
    raise RequestError(
        f"the package {OTHER} {other.version} of the package index, another project's, has taken the command "
        f"{script}; {DISTRIBUTION} is ours: pip uninstall {OTHER}, then {reinstall_command()}"
    )
