"""The command line. ``app`` declares the commands; nothing heavy is imported before a command needs it."""

from __future__ import annotations


def main() -> None:
    """Entry point of ``dietcode``."""
    from dietcode.cli.app import run

    run()
