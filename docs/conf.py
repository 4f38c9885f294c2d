"""How `make docs` builds these pages: by Sphinx, without a network, warnings are errors."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "server"), str(_ROOT / "docs" / "_ext")]

from dietcode import __version__  # noqa: E402

project = "DietCode"
author = "The DietCode authors"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "mathml", "reference"]
exclude_patterns = ["_ext", "_static"]

myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

smartquotes = False

html_theme = "furo"
html_title = f"DietCode {__version__}"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
pygments_style = "default"
pygments_dark_style = "native"
