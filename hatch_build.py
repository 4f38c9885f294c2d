"""What the wheel's build does beside copying files: it compiles our C, for this platform's wheel."""

from __future__ import annotations

import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LauncherHook(BuildHookInterface[Any]):
    """`dietcode.runtime.compile_launcher` for wheels, editable ones among them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the platform but no Python.

        The launcher uses nothing of Python's, and a Python that cannot load the call in C does without it.
        """
        sys.path.insert(0, self.root)
        from dietcode.runtime.compile_launcher import (
            compile_call,
            compile_launcher,
            compile_loops,
            compile_recorder,
        )

        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        compilers = compile_launcher, compile_loops, compile_call, compile_recorder
        made = [path for compiler in compilers if (path := compiler()) is not None]
        build_data["artifacts"] += [str(path.relative_to(self.root)) for path in made]  # git ignores them
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
