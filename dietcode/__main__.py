"""``python -m dietcode``."""

from dietcode.cli import main

main()
