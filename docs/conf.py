"""How Sphinx builds the site (`make docs`): every Markdown page of the repository, from where GitHub shows it.

The sources are the pages as they are, so that a link works in both places. What links lead to and is no page (a proto, a
test) is copied beside the site; folders lead to the repository, whose address is KERNELDYNO_REPOSITORY.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = os.environ.get("KERNELDYNO_REPOSITORY", "https://github.com/OWNER/kerneldyno")

project = "KernelDyno"
author = "The KernelDyno authors"
copyright = author
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "tests/README.md", "examples/README.md", "examples/verl/README.md"]
exclude_patterns = ["build", ".venv*"]
# Headings have the anchors that GitHub gives them, and a link to one that is not there is a warning, which fails the build.
myst_heading_anchors = 6
myst_links_external_new_tab = False
html_theme = "furo"
html_title = "KernelDyno"
# Searched for by the words of the text as it stands: flags, fields and outcomes are no English.
html_search_options = {"type": "default"}

#: `](target)` of a Markdown link, without title.
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _lead_folders_to_the_repository)


def _lead_folders_to_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    folder = (ROOT / page).parent

    def led(match: re.Match[str]) -> str:
        target = folder / match[1]
        if "://" in match[1] or not target.is_dir():
            return match[0]
        return f"]({REPOSITORY}/tree/main/{target.resolve().relative_to(ROOT)})"

    source[0] = _LINK.sub(led, source[0])
