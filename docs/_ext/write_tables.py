"""Write the generated parts of the pages into their sources: ``make docs-tables``."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT), str(_ROOT / "server"), str(_ROOT / "docs" / "_ext")]

from reference.parts import write  # noqa: E402

if __name__ == "__main__":
    for page in write():
        sys.stdout.write(f"{page.relative_to(_ROOT)}: written\n")
