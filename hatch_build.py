"""What the wheel's build does beside copying files: it compiles the launcher, for this platform's wheel."""

from __future__ import annotations

import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LauncherHook(BuildHookInterface[Any]):
    """`dietcode.runtime.compile_launcher` for wheels, editable ones among them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the platform but no Python: the launcher uses none of its interface."""
        sys.path.insert(0, self.root)
        from dietcode.runtime.compile_launcher import compile_launcher

        made = compile_launcher()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(str(made.relative_to(self.root)))  # git ignores it
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
