"""Test a trainer or a tool against KernelDyno, without a GPU and without torch: docs/testing.md.

`FakeScheduler` serves the scheduler's API with verdicts that the test decides, and breaks on command. `Cluster` runs the
real scheduler with scripted nodes. `results` makes results like those of a real judge. Products do not import this.
"""

from __future__ import annotations

from kerneldyno.testing import results
from kerneldyno.testing.cluster import Cluster
from kerneldyno.testing.fake_queue import FakeEvaluation, Judge, follow_script
from kerneldyno.testing.fake_scheduler import FakeScheduler
from kerneldyno.testing.scripted_node import ScriptedNode, node

__all__ = ["Cluster", "FakeEvaluation", "FakeScheduler", "Judge", "ScriptedNode", "follow_script", "node", "results"]
