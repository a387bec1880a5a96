"""Tests of the trainers' adapters run where verl and TRL are installed: `make test-trainers` sees to that.

Elsewhere they are not collected; with KERNELDYNO_REQUIRE_VERL=1 a missing one is a failure.
"""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import entry_points

#: What the tests of each kind import.
_NEEDS = {"verl": ("verl", "transfer_queue", "ray"), "trl": ("trl",), "deploy_ray": ("ray",)}

collect_ignore_glob = []
for _trainer, _modules in _NEEDS.items():
    _missing = [module for module in _modules if importlib.util.find_spec(module) is None]
    if _missing and os.environ.get("KERNELDYNO_REQUIRE_VERL"):
        raise RuntimeError(f"KERNELDYNO_REQUIRE_VERL is set, and there is no {', '.join(_missing)}: make test-trainers")
    if _missing:
        collect_ignore_glob += [f"test_{_trainer}*.py"]

# Without the distribution (PYTHONPATH alone) verl finds the plugin by its variable; test_verl_plugin.py needs the former.
if not any(entry.name == "kerneldyno" for entry in entry_points(group="verl.plugins")):
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "kerneldyno.verl.plugin")

# Nothing here may reach out: models and tokenizers are made by the tests.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
