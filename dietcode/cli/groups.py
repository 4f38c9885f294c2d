"""The commands in groups, as ``dietcode --help`` lists them, which has to be quick."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

HERE = "Workloads and libraries, on this machine"
REMOTE = "Jobs and libraries of a server"
OPERATING = "Running a server"
GROUPS = (HERE, REMOTE, OPERATING)


class GroupedCommands(TyperGroup):
    """Commands, each with one of `GROUPS` as its ``rich_help_panel``."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group, its commands in the order in which they were added."""
        longest = max(map(len, self.commands))
        for group in GROUPS:
            rows = [
                (name.ljust(longest), command.get_short_help_str(formatter.width - 6 - longest))
                for name, command in self.commands.items()
                if getattr(command, "rich_help_panel", None) == group
            ]
            with formatter.section(group):
                formatter.write_dl(rows)
