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


class TestCompile:
    @staticmethod
    def place(tmp_path: Path, words: str) -> tuple[Path, Path]:
        """Write a reference and a candidate of two files, whose Python tells the fake scheduler what to answer."""
        reference, candidate = tmp_path / "r.py", tmp_path / "c"
        reference.write_text("class Model: ...\ndef get_inputs(): return []\n")
        candidate.mkdir()
        (candidate / "candidate.py").write_text(f"# {words}\nclass ModelNew: ...\n")
        (candidate / "a.cpp").write_text("int a;")
        return reference, candidate

    async def test_what_compiles_has_its_times(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        named = (*self.place(tmp_path, ""), "--compile", "--address", scheduler.address)
        ran = await run("check", *named)
        assert ran.status == 0, ran.err
        assert "compiled in 500 ms on scripted\n  native: full headers, 500 ms" in ran.out
        told = (await run("check", *named, "--json")).json
        assert (told["problems"], told["compilation"]["state"]) == ([], "STATE_COMPILED")
        asked = await run("check", *named[:2], "--address", scheduler.address, "--json")
        assert "compilation" not in asked.json, "nobody asked for it"

    async def test_what_the_compilers_refuse_is_a_problem(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        named = (*self.place(tmp_path, "compiles=FAILED"), "--compile", "--address", scheduler.address)
        ran = await invoke("check", *named)
        assert ran.status == 1
        assert "compile: does not compile:\nscripted\n" in ran.out
        assert "valid: " not in ran.out
        told = (await invoke("check", *named, "--json")).json
        assert [problem["field"] for problem in told["problems"]] == ["compile"]
        assert told["compilation"]["error"]["message"] == "scripted"

    async def test_what_nobody_could_compile_says_why(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        named = self.place(tmp_path, "compiles=NOT_COMPILED")
        ran = await invoke("check", *named, "--compile", "--address", scheduler.address)
        assert (ran.status, ran.out.splitlines()[0]) == (1, "compile: not compiled, because scripted")
        alone = await invoke("check", *named, "--compile", "--address", NOBODY)
        assert alone.status == 1
        assert "compile: not compiled, because no scheduler answered: give its --address, or --local" in alone.out

    async def test_the_compilers_text_cannot_control_the_terminal(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        words = "compiles=FAILED prints=\x1b[2J[red]"
        ran = await invoke("check", *self.place(tmp_path, words), "--compile", "--address", scheduler.address)
        assert "[2J[red]" in ran.out
        assert "\x1b" not in ran.out
