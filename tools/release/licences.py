"""The licences of all distributions in an install, and a check that they are compatible with Apache-2.0.

KernelDyno's wheel and sdist contain no copy of another project: pip fetches each project from its own authors. An image
contains copies, so their licences must allow us to pass them on. A licence that is unknown or not allowed is a
complaint.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: SPDX identifiers of licences that require only their text and a notice.
ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0"),
        *("CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "NCSA", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
    }
)
#: Patterns of names of distributions that are accepted with another licence: that licence, and why it is acceptable.
EXCEPTIONS = {
    "certifi": ("MPL-2.0", "copyleft of its own files alone, which are passed on unchanged"),
    "tqdm": ("MPL-2.0 AND MIT", "copyleft of its own files alone, which are passed on unchanged"),
    "psycopg": ("LGPL-3.0-only", "a library that users install beside ours and may exchange; passed on unchanged"),
    "psycopg-binary": ("LGPL-3.0-only", "the same"),
    "nvidia-*": ("LicenseRef-NVIDIA", "CUDA's libraries, which torch for GPUs asks for: NVIDIA lets them be passed on"),
    "cuda-*": ("LicenseRef-NVIDIA", "the same"),
}
#: Words (lower case) in classifiers or the field License, for distributions without an SPDX expression.
_WORDS = {
    "apache": "Apache-2.0",
    "bsd-3-clause": "BSD-3-Clause",
    "3-clause bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd": "BSD-3-Clause",
    "isc": "ISC",
    "mpl-2.0": "MPL-2.0",
    "mozilla public license 2.0": "MPL-2.0",
    "mit": "MIT",
    "python software foundation": "PSF-2.0",
    "psf": "PSF-2.0",
    "nvidia": "LicenseRef-NVIDIA",
}
#: Only this much of the field License is searched: it holds a name, or a whole licence that starts with its title.
_FIELD_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Licence:
    """One distribution of an environment and its licence; an empty `expression` means that the licence is unknown."""

    name: str
    version: str
    expression: str
    #: Why it is accepted although `ALLOWED` does not have its licence; empty if it is no exception.
    reason: str = ""

    @property
    def fault(self) -> str | None:
        """The complaint about it, or None."""
        if not self.expression:
            return f"{self.name} {self.version}: its licence is unknown; find out, and add it to {Path(__file__).name}"
        if self.reason or _accepted(self.expression):
            return None
        return f"{self.name} {self.version}: {self.expression} is not in the list of what goes with Apache-2.0"


def of_environment(site_packages: Path) -> list[Licence]:
    """Return the licences of all distributions in one folder, sorted by name."""
    return sorted(map(_licence, distributions(path=[str(site_packages)])), key=lambda one: one.name)


def of_extras(extras: Iterable[str]) -> list[Licence]:
    """Return the licences of the distributions in the running environment that these extras of KernelDyno need."""
    there = {canonicalize_name(one.name): one for one in distributions()}
    wanted = {(canonicalize_name("kerneldyno"), extra) for extra in (*extras, "")}
    seen: set[tuple[str, str]] = set()
    while open_ends := wanted - seen:
        name, extra = open_ends.pop()
        seen.add((name, extra))
        distribution = there.get(name)
        for requirement in map(Requirement, (distribution and distribution.requires) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted |= {(canonicalize_name(requirement.name), one) for one in ("", *requirement.extras)}
    names = {name for name, _ in seen}
    brought = [_licence(one) for name, one in there.items() if name in names]
    return sorted(brought, key=lambda one: one.name)


def faults(found: Iterable[Licence]) -> Iterator[str]:
    """Return a complaint for each licence that is unknown or not allowed."""
    return (one.fault for one in found if one.fault is not None)


def _licence(distribution: Distribution) -> Licence:
    name = canonicalize_name(distribution.name)
    expression = _expression(distribution)
    for pattern, (known, why) in EXCEPTIONS.items():
        if fnmatch.fnmatchcase(name, pattern) and expression.startswith(known):
            return Licence(name, distribution.version, expression, why)
    return Licence(name, distribution.version, expression)


def _expression(distribution: Distribution) -> str:
    """Return the SPDX expression, or a licence found in classifiers or the field License; empty if there is none."""
    metadata = distribution.metadata.json
    if "license_expression" in metadata:
        return str(metadata["license_expression"])
    said = [line.rpartition(" :: ")[2] for line in metadata.get("classifier", ()) if line.startswith("License ::")]
    field = str(metadata.get("license", "")).strip()
    with contextlib.suppress(InvalidLicenseExpression):
        return canonicalize_license_expression(field)
    texts = (*said, field[:_FIELD_CHARACTERS])
    if any(re.search("gpl|general public", text.lower()) for text in texts):
        return "LicenseRef-GPL"  # it does not matter which of the GPLs it is
    for text in texts:
        words = re.findall(r"[a-z0-9.-]+", text.lower())
        for word, identifier in _WORDS.items():
            if f" {word} " in f" {' '.join(words)} ":
                return identifier
    return ""


def _accepted(expression: str) -> bool:
    """Return True if all licences of an AND are allowed, or one of an OR. With brackets all must be allowed."""
    if " OR " in expression and "(" not in expression:
        return any(_accepted(part) for part in expression.split(" OR "))
    return all(part.strip("() ") in ALLOWED for part in re.split(r" AND | OR ", expression))
