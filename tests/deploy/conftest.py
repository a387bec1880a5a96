"""Tests of deploy/ and kerneldyno.deploy: light, without a network, a container engine or a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

# Certificates of tests/rpc.
sys.path.insert(0, str(Path(__file__).parents[1] / "rpc"))
