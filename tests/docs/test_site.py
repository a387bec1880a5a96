"""The site builds without a warning: every page is in the navigation, and the targets of all links exist."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.docs.docs_pages import PAGES, ROOT, name


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """The builder "dummy" reads the pages and resolves their links as `make docs` does, but writes no HTML."""
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_link_that_leads_nowhere_is_a_failure(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "docs").mkdir(parents=True)
    (site / "docs/conf.py").write_text((ROOT / "docs/conf.py").read_text())
    (site / "docs/index.md").write_text(
        "# Index\n\n[a](index.md#nothing) [b](nothing.md) [c](../LICENSE) [d](index.md#index)\n"
    )
    (site / "LICENSE").write_text("...")
    done = build(site, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.count("WARNING") == 2, done.stderr


def test_every_page_is_in_the_navigation() -> None:
    spec = importlib.util.spec_from_file_location("docs_conf", ROOT / "docs/conf.py")
    assert spec is not None
    assert spec.loader is not None
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    listed = [f"{page}.md" for pages in conf.NAVIGATION.values() for page in pages]
    assert len(listed) == len(set(listed))
    assert {name(page) for page in PAGES} == {*listed, "docs/index.md"}


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "dummy", "-c", "docs", ".", str(out)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
