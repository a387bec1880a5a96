"""Tests of deploy/dashboards and deploy/prometheus: against a real Prometheus that scrapes real services."""

from __future__ import annotations

import sys
from pathlib import Path

# `deploy.dashboards`, also where pytest was not started as `python -m pytest`.
sys.path.insert(0, str(Path(__file__).parents[2]))
