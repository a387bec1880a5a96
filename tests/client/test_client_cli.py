"""Tests of `kerneldyno evaluate`, `batch` and `describe` as a person or a script uses them: output and exit status."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.rpc.validation import effective
from kerneldyno.v1.evaluation_pb2 import (
    CODE_LISTING_SASS,
    LAUNCH_MODE_CUDA_GRAPH,
    MEMORY_ERRORS_LABEL,
    OUTPUT_REUSE_REJECT,
    OUTPUT_REUSE_UNSPECIFIED,
    PRECISION_BF16,
    PRECISION_UNSPECIFIED,
    PROFILE_LEVEL_COUNTERS,
    PROFILE_LEVEL_KERNELS,
    PROFILE_LEVEL_NONE,
    PROFILE_LEVEL_UNSPECIFIED,
    PROVENANCE_POLICY_LABEL,
    REFERENCE_BACKEND_TORCH_COMPILE,
    SANITIZE_ALL,
    SANITIZE_WINNERS,
    SPEEDUP_KIND_DEVICE,
    SPEEDUP_KIND_END_TO_END,
    SPEEDUP_KIND_UNSPECIFIED,
    STRESS_KIND_ROWS,
    STRESS_KIND_SIGNS,
    STRESS_KIND_WAVE,
)
from tests.client.command import NOBODY, finished, invoke, run, started
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text("class Model: ...\n")
    candidate.write_text("class ModelNew: ...\n")
    return reference, candidate


def tasks(path: Path, *lines: Mapping[str, object] | str) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def results(path: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["id"] for line in found}) == len(found)
    return {line["id"]: line for line in found}


class TestEvaluate:
    async def test_a_card(self, scheduler: FakeFleet, sources: tuple[Path, Path]) -> None:
        ran = await run("evaluate", *sources, "--address", scheduler.address)
        assert ran.status == 0
        assert "CORRECT  2.00x" in ran.out
        assert "\x1b[" not in ran.out
        (message,) = [message for message in scheduler.messages if message.requests]
        (request,) = message.requests
        assert (request.reference_code, request.kernel_code) == ("class Model: ...\n", "class ModelNew: ...\n")
        assert dict(request.labels) == {"problem": sources[0].parent.name}, "the file is called reference.py"

    async def test_json_and_the_address_from_the_environment(
        self, scheduler: FakeFleet, sources: tuple[Path, Path]
    ) -> None:
        ran = await run("evaluate", *sources, "--json", KERNELDYNO_ADDRESS=scheduler.address)
        assert ran.status == 0
        assert ran.json["outcome"] == "CORRECT"
        assert ran.json["findings"] == []

    async def test_options_become_fields(self, scheduler: FakeFleet, sources: tuple[Path, Path]) -> None:
        options = ["--entry-point", "Net", "--backend", "cuda", "--trials", 3, "--timeout", 2.5, "--atol", "1e-3"]
        ran = await invoke("evaluate", *sources, *options, "--no-performance", "--address", scheduler.address)
        assert ran.status == 0
        request = scheduler.messages[0].requests[0]
        assert (request.entry_point, request.backend, request.num_correct_trials) == ("Net", "cuda", 3)
        assert request.timeouts.timing_timeout.ToSeconds() == 2
        assert request.tolerance.atol == 1e-3
        assert not request.run_performance
        assert not request.HasField("enable_profiling")

    @pytest.mark.parametrize("word", ["end-to-end", "END_TO_END"])
    async def test_precision_and_the_speedup_that_counts(
        self, scheduler: FakeFleet, sources: tuple[Path, Path], word: str
    ) -> None:
        options = ["--timing-precision", 0.05, "--speedup-kind", word, "--candidate-memory", "1.5GiB"]
        options += ["--allowed-precision", "BF16"]
        assert (await invoke("evaluate", *sources, *options, "--address", scheduler.address)).status == 0
        assert (await invoke("evaluate", *sources, "--address", scheduler.address)).status == 0
        given, plain = (message.requests[0] for message in scheduler.messages if message.requests)
        assert (given.timing_precision, given.speedup_kind) == (0.05, SPEEDUP_KIND_END_TO_END)
        assert given.candidate_device_memory_bytes == 3 << 29
        assert (given.allowed_precision, plain.allowed_precision) == (PRECISION_BF16, PRECISION_UNSPECIFIED)
        assert not plain.HasField("timing_precision")
        assert not plain.HasField("candidate_device_memory_bytes")
        assert plain.speedup_kind == SPEEDUP_KIND_UNSPECIFIED

    async def test_whatever_the_contract_lets_be_chosen_has_an_option(
        self, scheduler: FakeFleet, sources: tuple[Path, Path]
    ) -> None:
        options = ["--stress-kinds", "rows, SIGNS", "--output-reuse", "reject", "--provenance", "label"]
        options += ["--launch-mode", "cuda_graph", "--reference-backend", "torch-compile"]
        assert (await invoke("evaluate", *sources, *options, "--address", scheduler.address)).status == 0
        for flag in ("--stress", "--no-stress"):
            assert (await invoke("evaluate", *sources, flag, "--address", scheduler.address)).status == 0
        given, other, off = (message.requests[0] for message in scheduler.messages if message.requests)
        assert (off.HasField("stress_inputs"), off.stress_inputs, other.stress_inputs) == (True, False, True)
        assert not given.HasField("stress_inputs")
        assert list(given.stress_kinds) == [STRESS_KIND_ROWS, STRESS_KIND_SIGNS]
        assert (given.output_reuse, other.output_reuse) == (OUTPUT_REUSE_REJECT, OUTPUT_REUSE_UNSPECIFIED)
        assert (given.provenance_policy, given.launch_mode) == (PROVENANCE_POLICY_LABEL, LAUNCH_MODE_CUDA_GRAPH)
        assert given.reference_backend == REFERENCE_BACKEND_TORCH_COMPILE

    async def test_what_is_shown_of_kernels_and_what_follows_from_memory_errors(
        self, scheduler: FakeFleet, sources: tuple[Path, Path], tmp_path: Path
    ) -> None:
        file = tmp_path / "request.json"
        file.write_text(json.dumps({"enable_profiling": True, "sanitize": "all"}))
        options = ["--profile", "counters", "--sanitize", "WINNERS", "--memory-errors", "label", "--listing", "sass"]
        assert (await invoke("evaluate", *sources, *options, "--address", scheduler.address)).status == 0
        of_file = ["--request", file, "--profile", "none", "--address", scheduler.address]
        assert (await invoke("evaluate", *sources, *of_file)).status == 0
        given, other = (message.requests[0] for message in scheduler.messages if message.requests)
        assert (given.profile_level, given.sanitize) == (PROFILE_LEVEL_COUNTERS, SANITIZE_WINNERS)
        assert (given.memory_errors, given.code_listing) == (MEMORY_ERRORS_LABEL, CODE_LISTING_SASS)
        assert not given.HasField("enable_profiling")
        assert (other.profile_level, other.sanitize) == (PROFILE_LEVEL_NONE, SANITIZE_ALL)
        assert not other.HasField("enable_profiling"), "the option replaces what the file says of profiles"

    async def test_a_request_in_a_file_has_what_no_option_has(
        self, scheduler: FakeFleet, sources: tuple[Path, Path], tmp_path: Path
    ) -> None:
        file = tmp_path / "request.json"
        file.write_text(json.dumps({"salt": "7", "backend": "torch", "timeouts": {"load_timeout": 5}, "numWarmup": 9}))
        ran = await invoke("evaluate", *sources, "--request", file, "--backend", "cuda", "--address", scheduler.address)
        assert ran.status == 0, ran.err
        request = scheduler.messages[0].requests[0]
        assert (request.salt, request.num_warmup, request.timeouts.load_timeout.seconds) == ("7", 9, 5)
        assert request.backend == "cuda", "options count more"
        assert "class" in request.kernel_code

    async def test_options_add_to_what_a_file_says_of_devices_and_tolerance(
        self, scheduler: FakeFleet, sources: tuple[Path, Path], tmp_path: Path
    ) -> None:
        file = tmp_path / "request.json"
        file.write_text(
            json.dumps({"device": {"model": "H200", "kind": "cpu"}, "tolerance": {"rtol": 0.5, "atol": 0.25}})
        )
        options = ("--device", "cuda", "--atol", "0.125", "--stress-kinds", "rows")
        ran = await invoke("evaluate", *sources, "--request", file, *options, "--address", scheduler.address)
        assert ran.status == 0, ran.err
        request = scheduler.messages[0].requests[0]
        assert (request.device.kind, request.device.model) == ("cuda", "H200")
        assert (request.tolerance.atol, request.tolerance.rtol) == (0.125, 0.5)
        assert effective(request).stress_inputs, "who names kinds wants them"

    @pytest.mark.parametrize("of_file", [{"entry_point": "Relu"}, {"toolkit": "mine"}])
    async def test_sources_are_looked_at_with_the_names_that_a_file_has(
        self, scheduler: FakeFleet, tmp_path: Path, of_file: dict[str, str]
    ) -> None:
        reference, candidate, file = (tmp_path / name for name in ("reference.py", "candidate.py", "request.json"))
        reference.write_text("class Relu: ...\nclass ModelNew: ...\n")
        candidate.write_text("class ReluNew: ...\n")
        file.write_text(json.dumps(of_file))
        ran = await invoke("evaluate", reference, candidate, "--request", file, "--address", scheduler.address)
        assert ran.status == 0, ran.err
        swapped = await invoke("evaluate", reference, candidate, "--address", NOBODY)
        assert (swapped.status, "are the arguments swapped?" in swapped.err) == (2, True)

    async def test_a_request_in_a_file_may_be_all_of_it(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        file = tmp_path / "request.json"
        file.write_text(json.dumps({"reference_code": "class Model: ...", "kernel_code": "class ModelNew: ..."}))
        ran = await invoke("evaluate", "--request", file, "--trials", 2, "--address", scheduler.address)
        assert ran.status == 0, ran.err
        request = scheduler.messages[0].requests[0]
        assert (request.kernel_code, request.num_correct_trials) == ("class ModelNew: ...", 2)
        assert request.backend == "triton"

    async def test_a_candidate_may_be_held_against_what_a_file_has(
        self, scheduler: FakeFleet, sources: tuple[Path, Path], tmp_path: Path
    ) -> None:
        file = tmp_path / "request.json"
        text = json.dumps({"reference_code": "class Model: ...", "labels": {"problem": "mine"}})
        file.write_text(f"\ufeff{text}", encoding="utf-8")
        ran = await invoke("evaluate", sources[1], "--request", file, "--address", scheduler.address)
        assert ran.status == 0, ran.err
        request = scheduler.messages[0].requests[0]
        assert (request.reference_code, request.kernel_code) == ("class Model: ...", "class ModelNew: ...\n")
        assert dict(request.labels) == {"problem": "mine"}

    @pytest.mark.parametrize(
        ("text", "sources_too", "says"),
        [
            ("{", False, "is not JSON"),
            ("[]", False, "holds a list: give one JSON object"),
            ('{"kernl_code": ""}', False, "did you mean 'kernel_code'?"),
            ('{"num_warmup": "many"}', True, "num_warmup"),
            ('{"kernel_code": "k"}', True, "kernel_code: in "),
            ('{"salt": "7"}', False, "or a --request FILE that has the sources"),
            ("[" * 100_000, False, "is not JSON"),
            ('{"stress_kinds": [true]}', True, "true is not a name"),
        ],
    )
    async def test_a_request_in_a_file_that_cannot_be_meant_is_refused(
        self, sources: tuple[Path, Path], tmp_path: Path, text: str, sources_too: bool, says: str
    ) -> None:
        file = tmp_path / "request.json"
        file.write_text(text)
        ran = await invoke("evaluate", *(sources if sources_too else ()), "--request", file, "--address", NOBODY)
        assert (ran.status, ran.out) == (2, "")
        assert says in ran.err
        assert len(ran.err.splitlines()) == 1

    async def test_cases_take_the_place_of_a_reference(self, scheduler: FakeFleet, sources: tuple[Path, Path]) -> None:
        cases, candidate = sources
        ran = await invoke("evaluate", candidate, "--cases", cases, "--address", scheduler.address)
        assert ran.status == 0
        request = scheduler.messages[0].requests[0]
        assert (request.toolkit, request.reference_code) == ("kernel_simple", "")
        assert request.cases_code == "class Model: ...\n"

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["{reference}"], "CANDIDATE.py"),
            (["{reference}", "/no/such/file.py"], "cannot read /no/such/file.py"),
            (["{reference}", "{candidate}", "--cases", "{reference}"], "only the candidate"),
            (["{reference}", "{candidate}", "--devices", "cpu"], "--local"),
            (["{reference}", "{candidate}", "--trials", "99999999999999"], "num_correct_trials"),
            (["{reference}", "{candidate}", "--no-such-option"], "--no-such-option"),
            (["{reference}", "{candidate}", "--timing-precision", "high"], "--timing-precision"),
            (
                ["{reference}", "{candidate}", "--speedup-kind", "wall"],
                "'wall' is unknown; choose device or end-to-end",
            ),
            (["{reference}", "{candidate}", "--speedup-kind", ""], "choose device or end-to-end"),
            (["{reference}", "{candidate}", "--candidate-memory", "much"], "'much' is not a size"),
            (["{reference}", "{candidate}", "--library-baseline", "fast.py"], "give NAME=FILE.py"),
            (["{reference}", "{candidate}", "--library-baseline", "a=none.py"], "cannot read none.py"),
            (["{reference}", "{candidate}", "--allowed-precision", "fp4"], "choose one of tf32, fp16, bf16, fp8"),
            (["{reference}", "{candidate}", "--candidate-memory=-1GiB"], "with MiB or GiB (8GiB)"),
            (["{reference}", "{candidate}", "--output-reuse", "never"], "'never' is unknown; choose label or reject"),
            (
                ["{reference}", "{candidate}", "--stress-kinds", "rows,noise"],
                "'noise' is unknown; choose one of signs,",
            ),
            (["{reference}", "{candidate}", "--stress-kinds", ""], "choose one of signs"),
            (["{reference}", "{candidate}", "--stress-kinds", "rows,ROWS"], "names a kind twice"),
            (["{reference}", "{candidate}", "--provenance", "trust"], "label, reject-decoys, require-own-kernels"),
            (["{reference}", "{candidate}", "--launch-mode", "lazy"], "choose eager or cuda-graph"),
            (["{reference}", "{candidate}", "--reference-backend", "jax"], "choose one of eager, torch-compile"),
            (["{reference}", "{candidate}", "--stress-kinds", "rows", "--no-stress"], "contradict each other"),
            (["{reference}", "-", "--request", "-"], "can be only one of the files"),
            ([], "give REFERENCE.py and CANDIDATE.py, or a --request FILE"),
            (["--request", "/no/such/file.json"], "cannot read /no/such/file.json"),
        ],
    )
    async def test_usage(self, sources: tuple[Path, Path], arguments: list[str], says: str) -> None:
        named = {"reference": sources[0], "candidate": sources[1]}
        ran = await invoke("evaluate", *(argument.format_map(named) for argument in arguments), "--address", NOBODY)
        assert ran.status == 2
        assert says in ran.err
        assert ran.out == ""

    async def test_arguments_that_are_swapped_are_refused(
        self, scheduler: FakeFleet, sources: tuple[Path, Path]
    ) -> None:
        reference, candidate = sources
        reference.write_text("class Model: ...\ndef get_inputs(): ...\n")
        at = ("--address", scheduler.address)
        swapped = await invoke("evaluate", candidate, reference, *at)
        assert (swapped.status, swapped.out, swapped.err.count("\n")) == (2, "", 1)
        assert "candidate.py, given as the reference, defines ModelNew but not Model: are the arguments swapped?" in (
            swapped.err
        )
        twice = await invoke("evaluate", reference, reference, *at)
        assert (twice.status, "defines Model and get_inputs, but not ModelNew: are the" in twice.err) == (2, True)
        assert not scheduler.runs, "nothing was sent"
        candidate.write_text("class Model: ...\ndef get_inputs(): ...\nModelNew = Model\n")
        assert (await invoke("evaluate", reference, candidate, *at)).status == 0
        candidate.write_text("class Model: ...\ndef get_inputs(): ...\n")
        assert (await invoke("evaluate", reference, candidate, "--toolkit", "acme", *at)).status == 0
        reference.write_text("class Net: ...\n")
        candidate.write_text("class NetNew: ...\n")
        other = await invoke("evaluate", candidate, reference, "--entry-point", "Net", *at)
        assert (other.status, "defines NetNew but not Net" in other.err) == (2, True)

    async def test_nobody_there(self, sources: tuple[Path, Path]) -> None:
        ran = await run("evaluate", *sources, "--address", NOBODY)
        assert ran.status == 3
        assert ran.err.count("\n") == 1
        assert NOBODY in ran.err
        assert "kerneldyno up" in ran.err

    async def test_the_exit_status_tells_whether_it_is_what_is_required(
        self, scheduler: FakeFleet, sources: tuple[Path, Path]
    ) -> None:
        for options, status, said in (
            (["--require", "CORRECT"], 0, ""),
            (["--require", "correct", "--json"], 0, ""),
            (["--require", "INCORRECT"], 4, "the outcome is CORRECT, but INCORRECT is required"),
            (["--require-speedup", 1], 4, "no interval of a speedup was measured, but one above 1 is required"),
            (["--require", "RIGHT"], 2, "--require 'RIGHT' is unknown; choose one of CORRECT, INCORRECT, "),
            (["--require", "TIMEOUT", "--require-speedup", 1], 2, "--require-speedup needs a CORRECT candidate"),
        ):
            ran = await invoke("evaluate", *sources, *options, "--address", scheduler.address)
            assert (ran.status, said in ran.err) == (status, True), ran.err
            assert bool(ran.out) == (status != 2)  # the verdict is shown, except after a usage error

    @pytest.mark.parametrize(("least", "status"), [(1.1, 0), (1.2, 4), (1.3, 4), (1.5, 4)])
    async def test_the_whole_interval_has_to_be_above_the_speedup_that_is_required(
        self, scheduler: FakeFleet, sources: tuple[Path, Path], least: float, status: int
    ) -> None:
        sources[1].write_text("interval 1.2 1.4")
        ran = await invoke("evaluate", *sources, "--require-speedup", least, "--address", scheduler.address)
        assert ran.status == status
        said = f"the speedup is in [1.2, 1.4], but all above {least:g} is required"
        assert (said in ran.err) == (status == 4)

    async def test_ctrl_c_cancels(self, scheduler: FakeFleet, sources: tuple[Path, Path]) -> None:
        sources[1].write_text("hang")
        async with started("evaluate", *sources, "--address", scheduler.address) as process:
            await eventually(lambda: bool(scheduler.runs))
            process.send_signal(signal.SIGINT)
            ran = await finished(process)
        assert ran.status == 130
        assert scheduler.cancelled == scheduler.runs


class TestBatch:
    async def test_one_line_a_request_and_a_summary(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        source = tasks(tmp_path / "t.jsonl", *({"id": f"r{i}", "kernel_code": "k"} for i in range(300)))
        output = tmp_path / "r.jsonl"
        ran = await run("batch", source, "--output", output, "--window", 16, "--address", scheduler.address)
        assert ran.status == 0
        assert ran.err == ""  # no progress bar without a terminal
        assert "300 requests" in ran.out
        assert "CORRECT" in ran.out
        found = results(output)
        assert found.keys() == {f"r{i}" for i in range(300)}
        assert {"compiled", "correct", "speedup", "findings", "outcome"} <= found["r7"].keys()

    async def test_options_are_for_requests_that_leave_the_fields_open(
        self, scheduler: FakeFleet, tmp_path: Path
    ) -> None:
        source = tasks(
            tmp_path / "t.jsonl",
            {"id": "open", "kernel_code": "k", "labels": {"step": "1"}},
            {
                "id": "says",
                "kernel_code": "k",
                "speedup_kind": "device",
                "timing_precision": 0.5,
                "stress_kinds": ["wave"],
                "library_baselines": {"mine": "b"},
            },
        )
        options = ["--speedup-kind", "end-to-end", "--timing-precision", 0.02, "--candidate-memory", "512 mib"]
        (tmp_path / "fast.py").write_text("c")
        options += ["--stress-kinds", "rows", "--library-baseline", f"a={tmp_path / 'fast.py'}"]
        options += ["--library-baseline", f"fast={tmp_path / 'fast.py'}", "--address", scheduler.address]
        assert (await invoke("batch", source, "--output", tmp_path / "r.jsonl", *options)).status == 0
        sent = {one.id: one for message in scheduler.messages for one in message.requests}
        assert (sent["open"].timing_precision, sent["open"].speedup_kind) == (0.02, SPEEDUP_KIND_END_TO_END)
        assert sent["open"].candidate_device_memory_bytes == 512 << 20
        assert (list(sent["open"].stress_kinds), list(sent["says"].stress_kinds)) == (
            [STRESS_KIND_ROWS],
            [STRESS_KIND_WAVE],
        )
        assert [(each.name, each.code) for each in sent["open"].library_baselines] == [("a", "c"), ("fast", "c")]
        assert [(each.name, each.code) for each in sent["says"].library_baselines] == [("mine", "b")]
        assert (dict(sent["open"].labels), sent["open"].kernel_code) == ({"step": "1"}, "k")
        assert (sent["says"].timing_precision, sent["says"].speedup_kind) == (0.5, SPEEDUP_KIND_DEVICE)

    async def test_a_request_that_decides_about_its_profile_keeps_its_choice(
        self, scheduler: FakeFleet, tmp_path: Path
    ) -> None:
        lines: list[dict[str, object]] = [{}, {"enable_profiling": True}, {"profile_level": "none"}]
        source = tasks(
            tmp_path / "t.jsonl",
            *({"id": str(number), "kernel_code": "k", **line} for number, line in enumerate(lines)),
        )
        options = ["--profile", "kernels", "--sanitize", "all", "--address", scheduler.address]
        assert (await invoke("batch", source, "--output", tmp_path / "r.jsonl", *options)).status == 0
        sent = {one.id: one for message in scheduler.messages for one in message.requests}
        assert {id: (one.profile_level, one.enable_profiling) for id, one in sent.items()} == {
            "0": (PROFILE_LEVEL_KERNELS, False),
            "1": (PROFILE_LEVEL_UNSPECIFIED, True),
            "2": (PROFILE_LEVEL_NONE, False),
        }
        assert {one.sanitize for one in sent.values()} == {SANITIZE_ALL}

    async def test_results_say_which_have_one_reference(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        source = tasks(
            tmp_path / "t.jsonl",
            {"id": "a", "kernel_code": "k", "reference_code": "r = 1"},
            {"id": "b", "kernel_code": "l", "reference_code": "r = 1"},
            {"id": "c", "kernel_code": "k", "reference_code": "r = 2"},
            {"id": "d", "kernel_code": "k", "reference_code": "r = 1", "labels": {"problem": "mine"}},
        )
        ran = await invoke("batch", source, "--output", tmp_path / "r.jsonl", "--address", scheduler.address)
        assert ran.status == 0
        found = {id: one["labels"] for id, one in results(tmp_path / "r.jsonl").items()}
        assert found["a"] == found["b"] != found["c"]
        assert list(found["c"]) == ["kerneldyno.reference"]
        assert found["d"] == {"problem": "mine"}

    async def test_an_option_that_is_not_known_is_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        source = tasks(tmp_path / "t.jsonl", {"id": "a", "kernel_code": "k"})
        ran = await invoke(
            "batch", source, "--output", tmp_path / "r.jsonl", "--speedup-kind", "both", "--address", NOBODY
        )
        assert (ran.status, ran.out) == (2, "")
        assert "'both' is unknown; choose device or end-to-end" in ran.err
        assert not (tmp_path / "r.jsonl").exists()

    async def test_malformed_lines_are_answered_each_and_once(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        source = tasks(
            tmp_path / "t.jsonl",
            {"id": "good", "kernel_code": "k"},
            "{oops",
            {"id": "typo", "kernel_kode": "k"},
            {"id": "good", "kernel_code": "other"},
        )
        output = tmp_path / "r.jsonl"
        for _ in range(2):  # the second run repeats nothing
            ran = await invoke("batch", source, "-o", output, "--json", "--address", scheduler.address)
            assert ran.status == 0
            found = [json.loads(line) for line in output.read_text().splitlines()]
            invalid = sorted(line["message"][:7] for line in found if line["outcome"] == "INVALID")
            assert invalid == ["line 2:", "line 3:", "line 4:"]
            assert [line["id"] for line in found if line["outcome"] == "CORRECT"] == ["good"]
            assert len(found) == 4
        assert ran.json == {"requests": 4, "skipped": 1, "judged_again": 0, "outcomes": {"INVALID": 3, "CORRECT": 1}}
        assert scheduler.runs == ["good"]

    async def test_it_goes_on_where_it_was_killed(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        source = tasks(
            tmp_path / "t.jsonl",
            {"id": "a", "kernel_code": "k"},
            {"id": "b", "kernel_code": "hang"},
            {"id": "c", "kernel_code": "k"},
        )
        output = tmp_path / "r.jsonl"
        async with started("batch", source, "-o", output, "--address", scheduler.address) as process:
            await eventually(lambda: output.exists() and output.read_text().count("\n") == 2)
            process.kill()
        assert results(output).keys() == {"a", "c"}
        with output.open("a") as stream:
            stream.write('{"id": "b", "outco')
        tasks(source, *(json.loads(line) | {"kernel_code": "k"} for line in source.read_text().splitlines()))
        ran = await invoke("batch", source, "-o", output, "--json", "--address", scheduler.address)
        assert ran.status == 0
        assert ran.json == {"requests": 3, "skipped": 2, "judged_again": 0, "outcomes": {"CORRECT": 3}}
        assert results(output).keys() == {"a", "b", "c"}
        assert sorted(scheduler.runs) == ["a", "b", "b", "c"]

    async def test_a_restart_of_the_scheduler_goes_unnoticed(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        source = tasks(tmp_path / "t.jsonl", *({"id": f"r{i}", "kernel_code": "sleep 0.5"} for i in range(20)))
        arguments = ["batch", source, "-o", tmp_path / "r.jsonl", "--address", scheduler.address]
        async with started(*arguments, GRPC_VERBOSITY="ERROR") as process:
            await eventually(lambda: len(scheduler.runs) == 20)
            await scheduler.stop()
            scheduler.forget()
            await scheduler.start()
            ran = await finished(process)
        assert (ran.status, ran.err) == (0, "")
        assert len(results(tmp_path / "r.jsonl")) == 20

    async def test_requests_without_a_verdict_are_said_and_tried_again(
        self, scheduler: FakeFleet, tmp_path: Path
    ) -> None:
        source = tasks(tmp_path / "t.jsonl", {"id": "a", "kernel_code": "hang"}, {"id": "b", "kernel_code": "k"})
        output = tmp_path / "r.jsonl"
        async with started("batch", source, "-o", output, "--address", scheduler.address) as process:
            await eventually(lambda: "a" in scheduler.runs)
            for client_id, id in scheduler.work:
                if id == "a":
                    scheduler.cancel(client_id, id)
            ran = await finished(process)
        assert ran.status == 1
        assert "1 of 2 requests have no verdict" in ran.err
        tasks(source, {"id": "a", "kernel_code": "k"}, {"id": "b", "kernel_code": "k"})
        ran = await invoke("batch", source, "-o", output, "--address", scheduler.address)
        assert ran.status == 0
        assert {line["outcome"] for line in results(output).values()} == {"CORRECT"}

    async def test_usage(self, tmp_path: Path) -> None:
        source = tasks(tmp_path / "t.jsonl", {"id": "a", "kernel_code": "k"})
        for arguments, says in (
            ([tmp_path / "nothing.jsonl", "-o", tmp_path / "r"], "nothing.jsonl: No such file"),
            ([source, "-o", tmp_path / "no" / "r"], "No such file"),
            ([source, "-o", source], "another --output"),
            ([source], "--output"),
        ):
            ran = await invoke("batch", *arguments, "--address", NOBODY)
            assert ran.status == 2
            assert says in ran.err
        assert source.read_text() == '{"id": "a", "kernel_code": "k"}\n'

    async def test_nobody_there(self, tmp_path: Path) -> None:
        source = tasks(tmp_path / "t.jsonl", {"id": "a", "kernel_code": "k"})
        ran = await run("batch", source, "-o", tmp_path / "r.jsonl", "--address", NOBODY)
        assert ran.status == 3
        assert ran.err.count("\n") == 1


class TestDescribe:
    async def test_for_a_person(self, scheduler: FakeFleet) -> None:
        ran = await run("describe", "--address", scheduler.address)
        assert ran.status == 0
        assert "pid_namespace: active" in ran.out
        assert "cpu:0: A processor" in ran.out
        assert "node-b" in ran.out
        assert "unknown, its evaluator is older" in ran.out

    async def test_json(self, scheduler: FakeFleet) -> None:
        ran = await invoke("describe", "--json", "--address", scheduler.address)
        assert ran.status == 0
        here, gone = ran.json["nodes"]
        assert here["sandbox_layers"][0]["active"] is True
        assert gone["sandbox_layers"] == []
        assert ran.json["scheduler"]["backends"] == ["triton"]

    async def test_nobody_there(self) -> None:
        assert (await invoke("describe", "--address", NOBODY)).status == 3
