"""What each extra promises: the modules that can be imported with it, and whether torch comes along.

The release check fails for a module that `NEEDS` does not cover, so add each new package there together with its extra.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
#: The install without an extra.
BASE = ""
#: The extra that a module needs, by the longest prefix of its name.
NEEDS = {
    "kerneldyno.cli": BASE,
    "kerneldyno.client": BASE,
    "kerneldyno.client.request_spans": "tracing",
    "kerneldyno.doctor": BASE,
    "kerneldyno.report": BASE,
    "kerneldyno.rewards": BASE,
    "kerneldyno.rpc": BASE,
    "kerneldyno.rpc.interceptor": "scheduler",  # the server's side of a connection
    "kerneldyno.rpc.metric_series": "scheduler",
    "kerneldyno.rpc.security": "scheduler",
    "kerneldyno.rpc.serving": "scheduler",
    "kerneldyno.rpc.span_export": "tracing",
    "kerneldyno.v1": BASE,
    "kerneldyno.deploy": BASE,
    "kerneldyno.deploy.health": "scheduler",
    "kerneldyno.deploy.ray": "ray",
    "kerneldyno.scheduler": "scheduler",
    "kerneldyno.scheduler.standby": "postgres",
    "kerneldyno.scheduler.store.postgres": "postgres",
    "kerneldyno.evaluator": "evaluator",
    "kerneldyno.testing": BASE,
    "kerneldyno.training": "training",
    "kerneldyno.trainers": BASE,
    "kerneldyno.trainers.rejection": "training",
    "kerneldyno.rollout": "rollout",
    "kerneldyno.gateway": "gateway",
    "kerneldyno.verl": "verl",
    "kerneldyno.trl": "trl",
}
#: Extras that bring torch; no other may.
WITH_TORCH = frozenset({"evaluator", "training", "verl", "trl"})
#: Extras that pin versions which the other extras do not want, and install gigabytes.
TRAINERS = frozenset({"verl", "trl", "ray"})
#: Extras with compilers of gigabytes, some under NVIDIA's own licence; only asked for by name.
TILE_LANGUAGES = frozenset({"cute", "cutile", "tilelang"})
#: Extras for people who work on KernelDyno; the release promises nothing about them.
FOR_DEVELOPMENT = frozenset({"dev", "trainers-dev", "docs", "release"})


def declared() -> dict[str, list[Requirement]]:
    """Return the requirements of each extra for users, and of BASE, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {BASE: project["dependencies"]} | project["optional-dependencies"]
    return {
        extra: [Requirement(line) for line in lines] for extra, lines in extras.items() if extra not in FOR_DEVELOPMENT
    }


def included(extra: str) -> set[str]:
    """Return the extras that one extra includes: itself, those that it names, and the base."""
    named = {name for one in declared()[extra] if one.name == "kerneldyno" for name in one.extras}
    return {BASE, extra}.union(*(included(name) for name in named))


def extra_of(module: str) -> str:
    """Return the extra that a module needs. Raises KeyError for a module that `NEEDS` does not cover."""
    prefix = module
    while prefix not in NEEDS:
        prefix, dot, _ = prefix.rpartition(".")
        if not dot:
            raise KeyError(f"{module}: say in {Path(__file__).name} which extra it needs")
    return NEEDS[prefix]


def promised(extra: str, modules: Iterable[str]) -> list[str]:
    """Return those of `modules` that an install with this extra can import."""
    with_it = included(extra)
    return [module for module in modules if extra_of(module) in with_it]


def constraints(extra: str) -> Path:
    """Return the file with the versions that an extra was tested with."""
    return ROOT / ("constraints-trainers.txt" if extra in TRAINERS else "constraints.txt")


def chosen(parser: argparse.ArgumentParser, labels: Collection[str], *, trainers: bool = False) -> dict[str, str]:
    """Return the extras with these labels, or all but the tile languages (the trainers' only with `trainers`).

    Exits on an unknown label.
    """
    known = {label(extra): extra for extra in declared()}
    if unknown := set(labels) - set(known):
        parser.error(f"no such extra: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    left_out = TILE_LANGUAGES if trainers else TILE_LANGUAGES | TRAINERS
    return {name: known[name] for name in labels or known if labels or name not in left_out}


def label(extra: str) -> str:
    """Return the name of an extra in messages and in names of files."""
    return extra or "base"
