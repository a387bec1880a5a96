"""What each extra promises: the modules that can be imported with it, and whether torch comes along.

A module that is not spoken for fails the release check, so a new package is written down here together with its extra.
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
    "kerneldyno.rpc.interceptor": "scheduler",  # the services' end of a connection
    "kerneldyno.rpc.metric_series": "scheduler",
    "kerneldyno.rpc.security": "scheduler",
    "kerneldyno.rpc.serving": "scheduler",
    "kerneldyno.rpc.span_export": "tracing",
    "kerneldyno.v1": BASE,
    "kerneldyno.deploy": BASE,
    "kerneldyno.deploy.health": "scheduler",
    "kerneldyno.deploy.ray": "ray",
    "kerneldyno.scheduler": "scheduler",
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
#: Extras that pin versions which the rest does not want, and bring gigabytes.
TRAINERS = frozenset({"verl", "trl", "ray"})
#: Extras for people who work on KernelDyno; nothing is promised of them.
FOR_DEVELOPMENT = frozenset({"dev", "trainers-dev", "docs", "release"})


def declared() -> dict[str, list[Requirement]]:
    """Return the requirements of each extra for users, as pyproject.toml has them; BASE among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {BASE: project["dependencies"]} | project["optional-dependencies"]
    return {
        extra: [Requirement(line) for line in lines] for extra, lines in extras.items() if extra not in FOR_DEVELOPMENT
    }


def included(extra: str) -> set[str]:
    """Return the extras that come with one: itself, those that it names, and the base."""
    named = {name for one in declared()[extra] if one.name == "kerneldyno" for name in one.extras}
    return {BASE, extra}.union(*(included(name) for name in named))


def extra_of(module: str) -> str:
    """Return the extra that a module needs. Raises KeyError for a module that nobody has spoken for."""
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
    """Return the file of the versions that an extra was tested with."""
    return ROOT / ("constraints-trainers.txt" if extra in TRAINERS else "constraints.txt")


def chosen(parser: argparse.ArgumentParser, labels: Collection[str], *, trainers: bool = False) -> dict[str, str]:
    """Return the extras with these labels, by label; without labels all, the trainers' if so asked. Ends with an error."""
    known = {label(extra): extra for extra in declared()}
    if unknown := set(labels) - set(known):
        parser.error(f"no such extra: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return {name: known[name] for name in labels or known if labels or trainers or name not in TRAINERS}


def label(extra: str) -> str:
    """Return how an extra is shown, and what files about it are called."""
    return extra or "base"
