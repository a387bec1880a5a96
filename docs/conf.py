"""How Sphinx builds the site (`make docs`): the Markdown pages of the repository as they are, from where GitHub shows them.

So a link works in both places. A file that a link leads to and that is no page (a proto, a test) is copied beside the site;
a folder leads to the repository, whose address is KERNELDYNO_REPOSITORY. A page that no section of NAVIGATION has, and a
link to a page, file or heading that does not exist, fail the build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = os.environ.get("KERNELDYNO_REPOSITORY", "https://github.com/OWNER/kerneldyno")
NAVIGATION = {
    "First": ["README", "docs/quickstart", "docs/concepts", "docs/faq"],
    "Judging": [
        "docs/evaluating",
        "docs/building",
        "docs/verdicts",
        "docs/report",
        "docs/threat-model",
        "docs/promises",
        "docs/benchmarks",
        "docs/field",
    ],
    "Training": [
        "docs/rewards",
        "docs/training",
        "docs/verl",
        "docs/gateway",
        "docs/rollout",
        "docs/tiny_rl",
        "docs/testing",
    ],
    "Operating": [
        *("docs/operating", "docs/deploying", "docs/security", "docs/monitoring", "docs/metrics", "docs/tracing"),
        *("docs/sizing", "docs/scaling", "docs/driver", "docs/reliability"),
    ],
    "Coming from elsewhere": ["docs/migrating-from-kernelgym", "docs/migrating-from-kernelbench"],
    "Inside": [
        "docs/architecture",
        "docs/lessons",
        "docs/tile_languages",
        "docs/extending",
        "docs/api",
        "docs/errors",
        "tests/README",
        "corpus/README",
        "examples/README",
        "examples/verl/README",
    ],
    "Project": ["CONTRIBUTING", "CHANGELOG", "SECURITY"],
}

project = "KernelDyno"
author = "The KernelDyno authors"
copyright = author
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    *(f"{folder}{below}/README.md" for folder in ("corpus", "tests", "examples") for below in ("", "/**")),
]
exclude_patterns = ["build", ".venv*", "**/.*"]
# Headings have the anchors that GitHub gives them.
myst_heading_anchors = 6
# Pygments' shell does not follow a quotation over lines; the block is shown all the same.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_title = "KernelDyno"

#: `](target)` of a Markdown link, without title.
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _lead_folders_to_the_repository)
    app.connect("source-read", _add_navigation)


def _lead_folders_to_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    folder = (ROOT / page).parent

    def led(match: re.Match[str]) -> str:
        target = folder / match[1]
        if "://" in match[1] or not target.is_dir():
            return match[0]
        return f"]({REPOSITORY}/tree/main/{target.resolve().relative_to(ROOT)})"

    source[0] = _LINK.sub(led, source[0])


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """The side bar is written here and not on the page, where GitHub would show it."""
    if page == root_doc:
        for caption, pages in NAVIGATION.items():
            entries = "\n".join(f"/{name}" for name in pages if (ROOT / f"{name}.md").exists())
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
