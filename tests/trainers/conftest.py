"""Collection of the tests of the trainers' adapters, which need verl, TRL or Ray: `make test-trainers` installs them.

Where a package is missing, the tests that need it are not collected; with KERNELDYNO_REQUIRE_VERL=1 this is an error.
"""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import entry_points

import pytest

from tests import own_caches

#: Packages that each kind of test imports.
_NEEDS = {"verl": ("verl", "transfer_queue", "ray"), "trl": ("trl",), "deploy_ray": ("ray",)}

collect_ignore_glob = []
for _trainer, _modules in _NEEDS.items():
    _missing = [module for module in _modules if importlib.util.find_spec(module) is None]
    if _missing and os.environ.get("KERNELDYNO_REQUIRE_VERL"):
        raise RuntimeError(f"KERNELDYNO_REQUIRE_VERL is set, and there is no {', '.join(_missing)}: make test-trainers")
    if _missing:
        collect_ignore_glob += [f"test_{_trainer}*.py"]

# Without an installed distribution (PYTHONPATH alone), verl finds the plugin by this variable. test_verl_plugin.py
# needs the distribution.
if not any(entry.name == "kerneldyno" for entry in entry_points(group="verl.plugins")):
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "kerneldyno.verl.plugin")

# The tests must not use the network: they make their own models and tokenizers.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Set up build caches, as tests/conftest.py does, which these tests do not use."""
    own_caches.use(config)
