"""`--sandbox=require` with real processes: the evaluator serves if every layer holds, and refuses otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.evaluator.judge_harness import DEVICE

COMMAND = [
    *(sys.executable, "-m", "kerneldyno.evaluator", "--sandbox=require", f"--devices={DEVICE.partition(':')[0]}"),
    *("--listen=127.0.0.1:0", "--metrics=off", "--lanes=1", "--spares=1", "--exit-with-parent"),
]

#: A plug-in that undoes a layer in every runner: it changes the promised limit of processes.
SABOTEUR = """
import resource
from kerneldyno.evaluator.backends import Backend

class Saboteur(Backend):
    name = "saboteur"

    def warm_up(self, device):
        resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))

BACKEND = Saboteur()
"""


def test_it_serves_where_every_layer_holds() -> None:
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline().startswith("kerneldyno-evaluator ready ")
        finally:
            server.terminate()
    assert server.returncode == 0


def test_it_refuses_and_names_the_layer_that_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "saboteur.py").write_text(SABOTEUR)
    info = tmp_path / "saboteur-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: saboteur\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kerneldyno.backends]\nsaboteur = saboteur:BACKEND\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    assert "--sandbox=require, and these layers do not hold: rlimits" in done.stderr
    assert "ready" not in done.stdout
