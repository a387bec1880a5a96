"""`kerneldyno check`: what is wrong with a request, with and without a scheduler."""

from __future__ import annotations

import json
from pathlib import Path

from tests.client.command import NOBODY, invoke, run
from tests.client.fake_fleet import FakeFleet


class TestCheck:
    async def test_a_valid_request_and_who_could_run_it(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        reference, candidate = tmp_path / "r.py", tmp_path / "c.py"
        reference.write_text("class Model: ...\ndef get_inputs(): return []\n")
        candidate.write_text("class ModelNew: ...\n")
        ran = await run("check", reference, candidate, "--precision", "bf16", "--address", scheduler.address)
        assert ran.status == 0, ran.err
        assert ran.out.splitlines()[0] == "valid: the fields, and the syntax of the sources"
        assert "a registered device could run it" in ran.out
        told = await run("check", reference, candidate, "--json", "--address", scheduler.address)
        assert (told.json["problems"], told.json["runnable"], len(told.json["digest"])) == ([], True, 64)
        assert not [message for message in scheduler.messages if message.requests], "nothing was submitted"

    async def test_without_a_scheduler(self, tmp_path: Path) -> None:
        fields = tmp_path / "fields.json"
        fields.write_text(
            json.dumps(
                {
                    "reference_code": "class Model: ...\n",
                    "kernel_code": "class ModelNew(:\n",
                    "num_correct_trials": 99,
                    "kernel_files": {"part.py": "def f(\n"},
                }
            )
        )
        ran = await invoke("check", "--request", fields, "--address", NOBODY)
        assert ran.status == 1
        assert "num_correct_trials: is 99; allowed are 1 to 20" in ran.out
        assert "reference_code: defines no get_inputs" in ran.out
        assert "kernel_code: line 1: " in ran.out
        assert "kernel_files[0].content: line 1: " in ran.out
        assert "no scheduler was asked" in ran.out

    async def test_a_candidate_without_its_class(self, tmp_path: Path) -> None:
        reference, candidate = tmp_path / "r.py", tmp_path / "c.py"
        reference.write_text("class Model: ...\ndef get_inputs(): return []\n")
        candidate.write_text("class Other: ...\n")
        ran = await invoke("check", reference, candidate, "--address", NOBODY)
        assert (ran.status, "kernel_code: defines no ModelNew" in ran.out) == (1, True)
