"""The site made of this folder: ``make docs`` builds it, and every warning is an error.

Formulas are written as plain text in the pages, so the site needs no script for mathematics, and
nothing of it is loaded from another host. ``-D source_url=https://host/owner/name/blob/main`` makes
links of what stands outside this folder; without it such places are shown as text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE / "_ext"))

project = "rlvr"
author = "The rlvr maintainers"
_init = (_HERE.parent / "rlvr_core" / "__init__.py").read_text(encoding="utf-8")
(release,) = re.findall(r'^__version__ = "(.+)"$', _init, re.MULTILINE)
version = release

extensions = ["myst_parser", "sphinx_copybutton", "pages"]
exclude_patterns = ["_ext"]
highlight_language = "text"
smartquotes = False  # they would make one dash of the two of an option
myst_heading_anchors = 6
# a code host knows none of MyST's additions, so the pages use none
myst_enable_extensions: list[str] = []

html_theme = "furo"
html_title = f"rlvr {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
# what is copied from a console is the command
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
