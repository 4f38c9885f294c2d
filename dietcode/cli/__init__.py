"""The command line. ``app`` declares the commands; nothing heavy is imported before a command needs it."""

from __future__ import annotations


def main() -> None:
    """Entry point of ``dietcode``."""
    from dietcode.lean import collect_seldom

    collect_seldom()
    from dietcode.cli.app import run

    run()
