"""The whole page: one file that loads nothing, runs only its own script, and has no place for injected markup."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from string import Template

from kerneldyno.report import packing, sections
from kerneldyno.report.candidates import Candidate
from kerneldyno.report.figures import Figures
from kerneldyno.report.joining import References
from kerneldyno.report.kernels import kernels
from kerneldyno.report.markup import html, node
from kerneldyno.report.workloads import workloads

#: Files of the page's script, in this order.
_SCRIPTS = ("data.js", "diff.js", "tables.js", "viewer.js", "start.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a report."""

    title: str
    source: str
    version: str
    made: datetime


def page(
    heading: Heading, figures: Figures, found: Sequence[Candidate], references: References, notes: Sequence[str]
) -> str:
    """Return the page as HTML."""
    ordered = packing.in_order(found)
    style, script = _part("page.css"), "\n".join(_part(name) for name in _SCRIPTS)
    parts = [
        sections.tiles(figures),
        sections.warnings(figures, notes),
        node(
            "div",
            node(
                "div",
                sections.outcomes(figures),
                sections.findings(figures),
                sections.stages(figures),
                sections.environments(figures),
            ),
            node("div", sections.fast(figures), sections.speedups(figures, found)),
            class_="grid",
        ),
        sections.groups(figures),
        workloads(ordered),
        kernels(ordered),
    ]
    return Template(_part("page.html")).substitute(
        policy=_policy(style, script),
        title=html(node("title", heading.title)),
        heading=html(node("h1", heading.title), node("p", _subtitle(heading, figures), class_="note")),
        style=style,
        sections=html(*(part for part in parts if part is not None)),
        data=html(*packing.pack(ordered, references)),
        script=script,
    )


def _policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows these two by their hashes, and no other markup or script."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _subtitle(heading: Heading, figures: Figures) -> str:
    problems = f"{figures.problems} problem{'' if figures.problems == 1 else 's'}"
    return (
        f"{figures.candidates} candidates, {problems}, from {heading.source}; "
        f"made {heading.made.astimezone(UTC):%Y-%m-%d %H:%M} UTC by KernelDyno {heading.version}"
    )


def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
