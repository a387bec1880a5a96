"""Tests of the attack corpus as a user sees it: its files, when an attack counts as stopped, and the command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from kerneldyno.cli import corpus
from kerneldyno.cli.selftest import _plan
from kerneldyno.v1.evaluation_pb2 import Environment, EvalResult, Finding, Interval, TimingStats
from kerneldyno.v1.fleet_service_pb2 import Device
from tests.client.command import NOBODY, invoke, run
from tests.client.fake_fleet import FakeFleet

ROOT = Path(__file__).resolve().parents[2]
BODY = "\nclass ModelNew: ...\n"
#: An attack that the fake scheduler's node can run: it has one CPU device, and Triton.
TRITON_ATTACK = "E17_illegal_address"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus with one problem, one honest candidate, and no attacks yet."""
    for name in ("attacks", "honest", "problems"):
        (tmp_path / name).mkdir()
    (tmp_path / "problems" / "sum.py").write_text("class Model: ...\n")
    (tmp_path / "honest" / "plain.py").write_text('"""Plain work.\n\nproblem: sum\n"""' + BODY)
    return tmp_path / "attacks"


def attack(folder: Path, *lines: str, name: str = "T12_cache.py") -> corpus.Entry:
    path = folder / name
    header = "\n".join(("T12: a cache.", "", "It keeps: what it had.", "", *lines))
    path.write_text(f'"""{header}\n"""' + BODY)
    return corpus.read(path)


def result(outcome: str = "CORRECT", micros: float = 0.0, device: str = "cuda:0", **fields: Any) -> EvalResult:
    made = EvalResult(
        outcome=EvalResult.Outcome.Value(outcome), environment=Environment(device=device), speedup=1.0, **fields
    )
    if micros:
        made.candidate_timing.CopyFrom(TimingStats(median_seconds=micros * 1e-6))
    return made


def test_a_header_is_read(folder: Path) -> None:
    entry = attack(
        folder,
        "problem: sum",
        "backend: cuda",
        "outcome: INCORRECT, CORRECT",
        "honest: plain",
        "devices: cuda",
        'request: {"num_perf_trials": 7, "timeouts": {"timing_timeout": 5}}',
        "finding: S19",
    )
    assert (entry.id, entry.name, entry.title, entry.finding) == ("T12", "T12_cache", "a cache.", "S19")
    assert (entry.outcomes, entry.devices) == (("INCORRECT", "CORRECT"), ("cuda",))
    assert entry.honest is not None
    assert corpus.read(entry.honest).outcomes == ("CORRECT",)
    asked = corpus.request(entry, "cuda", id="x")
    assert (asked.id, asked.backend, asked.num_perf_trials) == ("x", "cuda", 7)
    assert (asked.timeouts.timing_timeout.seconds, asked.timeouts.load_timeout.seconds) == (5, 300)
    assert asked.reference_code == "class Model: ...\n"
    assert asked.kernel_code.endswith(BODY)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["outcome: INCORRECT"], r"T12_cache.py: there is no problems/\?.py"),
        (["problem: product", "outcome: INCORRECT"], "there is no problems/product.py"),
        (["problem: sum"], "outcome: missing"),
        (["problem: sum", "outcome: WRONG"], "outcome: WRONG"),
        (["problem: sum", "outcome: CORRECT", "honest: nobody"], "there is no honest/nobody.py"),
        (["problem: sum", "outcome: CORRECT", "devices: tpu"], "devices: tpu"),
        (["problem: sum", "outcome: CORRECT", "request: {"], "request: "),
        (["problem: sum", "outcome: CORRECT", "request: []"], "request: not a JSON object"),
        (["problem: sum", "outcomes: CORRECT"], "unknown key 'outcomes'"),
    ],
)
def test_a_bad_header_is_named(folder: Path, lines: list[str], message: str) -> None:
    with pytest.raises(corpus.CorpusError, match=message):
        attack(folder, *lines)


def test_a_file_without_a_header_is_named(folder: Path) -> None:
    (folder / "T01_x.py").write_text(BODY)
    with pytest.raises(corpus.CorpusError, match=r"T01_x.py: must begin with a docstring"):
        corpus.read(folder / "T01_x.py")


def test_what_counts_as_stopped(folder: Path) -> None:
    wrong = attack(folder, "problem: sum", "outcome: INCORRECT, REJECTED")
    assert corpus.shortfall(wrong, result("INCORRECT")) is None
    assert corpus.shortfall(wrong, result("CORRECT")) == "CORRECT, and not INCORRECT or REJECTED"
    assert "INFRASTRUCTURE_ERROR" in str(corpus.shortfall(wrong, result("INFRASTRUCTURE_ERROR")))
    for escaped in (
        result("INCORRECT", logs="x\nESCAPED: out\n"),
        result("INCORRECT", message="ValueError: ESCAPED: out"),
    ):
        assert "ESCAPED: out" in str(corpus.shortfall(wrong, escaped))
    found = attack(folder, "problem: sum", "outcome: REJECTED", "finding: S19")
    assert corpus.shortfall(found, result("REJECTED")) == "finding S19 is not there"
    assert corpus.shortfall(found, result("REJECTED", findings=[Finding(id="S19")])) is None


@pytest.mark.parametrize(
    ("got", "speedup", "device", "stopped"),
    [
        (100, 1.0, "cuda:0", True),
        (81, 1.0, "cuda:0", True),
        (79, 1.0, "cuda:0", False),
        (100, 1.3, "cuda:0", False),  # the candidate is not faster: it made the reference slower
        (100, 1.0, "cpu:0", True),
        (60, 3.0, "cpu:0", True),  # on a CPU, these times are too short to tell
    ],
)
def test_a_correct_attack_must_have_gained_nothing(
    folder: Path, got: float, speedup: float, device: str, stopped: bool
) -> None:
    entry = attack(folder, "problem: sum", "outcome: CORRECT", "honest: plain")
    mine = result(micros=got, device=device)
    mine.speedup = speedup
    why = corpus.shortfall(entry, mine, result(micros=100, device=device))
    assert (why is None) == stopped, why


def test_on_the_cpu_time_and_ratio_must_both_say_so(folder: Path) -> None:
    entry = attack(folder, "problem: sum", "outcome: CORRECT", "honest: plain")
    true, quick = result(micros=2000, device="cpu:0"), result(micros=500, device="cpu:0")
    assert corpus.shortfall(entry, quick, true) is None  # the machine was busy when the honest candidate was timed
    true.speedup = 0.02
    assert corpus.shortfall(entry, quick, true) is None  # so busy that candidates (low priority) got no time
    quick.speedup = 4.0
    assert "4.00 x the reference's speed" in str(corpus.shortfall(entry, quick, true))
    assert "has no time" in str(corpus.shortfall(entry, quick, None))
    usual = result(micros=2000, device="cpu:0")
    usual.speedup, true.speedup = 3.9, 1.0
    assert corpus.shortfall(entry, usual, true) is None
    usual.speedup = 4.1  # the times do not explain this ratio
    assert "4.10 x the reference's speed" in str(corpus.shortfall(entry, usual, true))


def test_end_to_end_times_of_a_host_that_is_not_sure_are_no_gain(folder: Path) -> None:
    """Two processes made the same calls, but two timings on the host of an H200 gave 15.7 us and 23.6 us."""
    entry = attack(folder, "problem: sum", "outcome: CORRECT", "honest: plain")

    def called(micros: float, ratio: float, low: float, high: float) -> EvalResult:
        made = result(micros=12.8, end_to_end_speedup=ratio)
        made.candidate_end_to_end.CopyFrom(TimingStats(median_seconds=micros * 1e-6))
        made.end_to_end_speedup_interval.CopyFrom(Interval(low=low, high=high))
        return made

    true = called(30.0, 0.40, 0.28, 0.55)
    assert corpus.shortfall(entry, called(20.0, 0.60, 0.50, 0.72), true) is None
    assert "0.60 x the reference's speed" in str(corpus.shortfall(entry, called(20.0, 0.60, 0.56, 0.64), true))


def test_the_corpus_is_whole() -> None:
    root = corpus.find()
    assert root == ROOT / "corpus"
    ids = {entry.id for entry in corpus.entries(root / "attacks")}
    assert {f"E{number:02}" for number in range(1, 23)} <= ids
    for name in ("honest", "wrong"):
        assert all(entry.problem.is_file() for entry in corpus.entries(root / name))


def test_a_wheel_has_the_corpus(tmp_path: Path) -> None:
    builder = WheelBuilder(str(ROOT))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    files = {path.name for path in (tmp_path / "site/kerneldyno/cli/corpus_files/attacks").iterdir()}
    attacks = list(corpus.entries(ROOT / "corpus" / "attacks"))
    assert files == {entry.path.name for entry in attacks}
    code = "from kerneldyno.cli import corpus; r = corpus.find(); print(r, len(list(corpus.entries(r / 'attacks'))))"
    installed = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert installed.stdout.split() == [str(tmp_path / "site/kerneldyno/cli/corpus_files"), str(len(attacks))]


async def test_an_attack_that_gets_through_is_shown(scheduler: FakeFleet) -> None:
    ran = await run("selftest", "--only", f"{TRITON_ATTACK},E01", "--address", scheduler.address)
    assert ran.status == 1
    assert "E17" in ran.out
    assert f"{TRITON_ATTACK}: CORRECT, and not RUNTIME_ERROR" in ran.out
    assert "0 of 1 attacks stopped on A processor; 1 GOT THROUGH; 4 not for this device or its backends: E01" in ran.out


async def test_the_report_as_json(scheduler: FakeFleet) -> None:
    ran = await invoke("selftest", "--only", TRITON_ATTACK, "--address", scheduler.address, "--json")
    assert ran.status == 1
    (told,) = ran.json.pop("attacks")
    assert ran.json["got_through"] == 1
    assert (told["id"], told["outcome"], told["stopped"], told["judged"]) == ("E17", "CORRECT", False, True)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_attacks_that_a_device_cannot_run_are_left_out_by_name(folder: Path, kind: str) -> None:
    """Only a service with a GPU profiles and runs compute-sanitizer, so attacks that need these tools run only there."""
    header = ("problem: sum", "outcome: INCORRECT", "backend: torch")
    everywhere = attack(folder, *header, name="T01_everywhere.py")
    profiled = attack(folder, *header, 'request: {"enable_profiling": true}', name="T02_profiled.py")
    owned = attack(
        folder, *header, 'request: {"provenance_policy": "PROVENANCE_POLICY_REQUIRE_OWN_KERNELS"}', name="T03_owned.py"
    )
    on_gpu = attack(folder, *header, "devices: cuda", name="T04_on_gpu.py")
    in_cuda = attack(folder, "problem: sum", "outcome: INCORRECT", "backend: cuda", name="T05_in_cuda.py")
    levelled = attack(folder, *header, 'request: {"profile_level": "kernels"}', name="T06_levelled.py")
    sanitized = attack(folder, *header, 'request: {"sanitize": "all"}', name="T07_sanitized.py")
    with_gpu = [everywhere, profiled, owned, on_gpu, levelled, sanitized]
    attacks = [*with_gpu, in_cuda]
    plan = _plan(attacks, [Device(kind=kind)], ["torch", "triton"], None)
    assert list(plan.attacks) == ([everywhere] if kind == "cpu" else with_gpu)
    assert list(plan.left_out) == [one for one in attacks if one not in plan.attacks]


async def test_what_cannot_be_run_is_refused(scheduler: FakeFleet) -> None:
    unknown = await invoke("selftest", "--only", "E99", "--address", scheduler.address)
    assert (unknown.status, unknown.err) == (2, "kerneldyno: --only: no attack is called E99\n")
    no_gpu = await invoke("selftest", "--device", "cuda", "--address", scheduler.address)
    assert (no_gpu.status, no_gpu.err) == (2, "kerneldyno: the service has no cuda device\n")
    unreachable = await invoke("selftest", "--only", "E01", "--address", NOBODY)
    assert unreachable.status == 3


def test_a_real_installation_stops_attacks() -> None:
    command = [
        sys.executable,
        "-m",
        "kerneldyno.cli",
        "selftest",
        "--local",
        "--devices",
        "cpu",
        "--only",
        "E01,E16_stops_itself,T16_profiler",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 of 5 attacks stopped" in ran.stdout
    assert "1 not for this device or its backends: T16_profiler" in ran.stdout, (
        "a service without a GPU refuses to profile"
    )
    assert ran.stdout.count("RUNTIME_ERROR") == 4
