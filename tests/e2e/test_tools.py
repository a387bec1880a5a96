"""Commands that a person types, against running services: `buf curl` with reflection, and `kerneldyno`."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.rpc import error_details_pb2

from kerneldyno.client import LocalServices
from tests.e2e.e2e_harness import ON_GPU, PROBLEMS, REFERENCE, candidate

pytestmark = pytest.mark.slow

BUF = str(Path(sys.executable).with_name("buf"))
ONCE = "kerneldyno.v1.SchedulerService/EvaluateOnce"
#: Fields that every line of a results file has.
PROMISED = {"id", "outcome", "compiled", "correct", "speedup", "findings"}


def run(*arguments: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=timeout)


def curl(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `buf curl`, which tests use like grpcurl. The first argument may be a method; reflection gives the schema."""
    first, *rest = arguments
    where = [f"http://{address}/{first}"] if "/" in first else [f"http://{address}", first]
    return run(BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *where, *rest)


def kerneldyno(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "kerneldyno.cli", *map(str, arguments))


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Tests of buf curl


def test_services_and_methods_are_listed_by_reflection(services: LocalServices) -> None:
    for fields, names in (
        (services.scheduler, {"SchedulerService", "FleetService", "RewardService"}),
        (services.evaluator, {"EvaluatorService"}),
    ):
        listed = curl(fields["grpc"], "--list-services", "--reflect-protocol", "grpc-v1").stdout.split()
        assert {f"kerneldyno.v1.{name}" for name in names} | {"grpc.health.v1.Health"} <= set(listed)
        assert listed == curl(fields["grpc"], "--list-services", "--reflect-protocol", "grpc-v1alpha").stdout.split()
    methods = curl(services.address, "--list-methods").stdout.split()
    for method in ("Evaluate", "EvaluateOnce", "GetEvaluation", "CancelEvaluation", "GetCapabilities"):
        assert f"kerneldyno.v1.SchedulerService/{method}" in methods
    assert {"kerneldyno.v1.FleetService/Synchronize", "kerneldyno.v1.FleetService/ListNodes"} <= set(methods)
    of_evaluator = curl(services.evaluator["grpc"], "--list-methods").stdout.split()
    for method in ("Evaluate", "WatchAttempt", "CancelAttempt", "GetCapabilities"):
        assert f"kerneldyno.v1.EvaluatorService/{method}" in of_evaluator


def test_both_services_say_that_they_are_well(services: LocalServices) -> None:
    for fields, name in ((services.scheduler, "SchedulerService"), (services.evaluator, "EvaluatorService")):
        for body in ("{}", json.dumps({"service": f"kerneldyno.v1.{name}"})):
            assert parsed(curl(fields["grpc"], "grpc.health.v1.Health/Check", "-d", body)) == {"status": "SERVING"}
    unknown = curl(services.address, "grpc.health.v1.Health/Check", "-d", '{"service": "kerneldyno.v1.Nothing"}')
    assert unknown.returncode != 0


def test_one_kernel_is_judged_by_a_json_body(services: LocalServices) -> None:
    problem = PROBLEMS / "softmax"
    body = {
        "request": {
            "reference_code": (problem / "reference.py").read_text(),
            "kernel_code": (problem / "triton_rows.py").read_text(),
            "num_perf_trials": 5,
        }
    }
    result = parsed(curl(services.address, ONCE, "-d", json.dumps(body)))["result"]
    assert (result["outcome"], result["correct"]) == ("CORRECT", True)
    assert result["speedup"] > 0
    assert result["environment"]["driverVersion" if ON_GPU else "tritonInterpreter"]


def test_an_error_names_the_field(services: LocalServices) -> None:
    done = curl(services.address, ONCE, "-d", json.dumps({"request": {"reference_code": REFERENCE}}))
    assert done.returncode != 0
    error = json.loads(done.stderr)
    assert error["code"] == "invalid_argument"
    assert "kernel_code" in error["message"]
    details = {detail["type"]: base64.b64decode(detail["value"] + "==") for detail in error["details"]}
    bad = error_details_pb2.BadRequest.FromString(details["google.rpc.BadRequest"])
    assert [violation.field for violation in bad.field_violations] == ["kernel_code"]
    info = error_details_pb2.ErrorInfo.FromString(details["google.rpc.ErrorInfo"])
    assert (info.domain, info.reason) == ("kerneldyno", "INVALID_REQUEST")


# Tests of kerneldyno evaluate and describe


def test_evaluate_shows_a_verdict(services: LocalServices, tmp_path: Path) -> None:
    reference, good, bad = tmp_path / "reference.py", tmp_path / "good.py", tmp_path / "bad.py"
    reference.write_text(REFERENCE)
    good.write_text(candidate())
    bad.write_text(candidate("raise ValueError('my own words')"))
    options = ("--backend", "torch", "--no-performance", "--address", services.address)
    result = parsed(kerneldyno("evaluate", reference, good, *options, "--json"))
    assert (result["outcome"], result["correct"]) == ("CORRECT", True)
    assert result.keys() >= PROMISED
    shown = kerneldyno("evaluate", reference, bad, *options)
    assert shown.returncode == 0, "a verdict is a success, whatever it says"
    assert "RUNTIME_ERROR" in shown.stdout
    assert "my own words" in shown.stdout
    assert "candidate.py" in shown.stdout, "the traceback shows the candidate's own lines"


def test_evaluate_tells_bad_use_from_an_absent_service(services: LocalServices, tmp_path: Path) -> None:
    reference, good = tmp_path / "reference.py", tmp_path / "good.py"
    reference.write_text(REFERENCE)
    good.write_text(candidate())
    missing = kerneldyno("evaluate", reference, tmp_path / "no.py", "--address", services.address)
    assert (missing.returncode, "no.py" in missing.stderr) == (2, True)
    absent = kerneldyno("evaluate", reference, good, "--address", "127.0.0.1:1")
    assert (absent.returncode, "127.0.0.1:1" in absent.stderr) == (3, True)
    assert "Traceback" not in missing.stderr + absent.stderr


def test_describe_tells_what_is_there(services: LocalServices) -> None:
    found = parsed(kerneldyno("describe", "--address", services.address, "--json"))
    assert set(found["scheduler"]["backends"]) >= {"triton", "cuda", "torch"}
    assert set(found["scheduler"]["toolkits"]) >= {"kernelbench", "kernel_simple"}
    (node,) = found["nodes"]
    assert node["address"] == services.evaluator["grpc"]
    assert [device["kind"] for device in node["devices"]] == ["cuda" if ON_GPU else "cpu"]
    layers = {layer["name"]: layer["active"] for layer in node["sandbox_layers"]}
    assert any(layers.values()), "candidates of this run are behind some wall"


# Tests of kerneldyno batch


def task(id: str, body: str = "pass", **fields: object) -> str:
    code = {"reference_code": REFERENCE, "kernel_code": candidate(body, id)}
    fixed = {"backend": "torch", "run_performance": False, "stress_inputs": False}
    return json.dumps({"id": id, **code, **fixed, **fields})


def read(results: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a results file."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines(keepends=True) if line.endswith("\n")]


def test_batch_gives_every_line_a_verdict(services: LocalServices, tmp_path: Path) -> None:
    tasks, results = tmp_path / "tasks.jsonl", tmp_path / "results.jsonl"
    softmax = PROBLEMS / "softmax"
    plain = {
        "id": "plain",  # these three fields and no others
        "reference_code": (softmax / "reference.py").read_text(),
        "kernel_code": (softmax / "triton_rows.py").read_text(),
    }
    named = {
        "id": "named",
        "reference_code": REFERENCE.replace("Model", "Net"),
        "kernel_code": candidate().replace("Model", "Net"),
        "entry_point": "Net",
        "backend": "torch",
    }
    expected = {
        "plain": "CORRECT",
        "named": "CORRECT",
        "wrong": "INCORRECT",
        "raises": "RUNTIME_ERROR",
        "crashes": "RUNTIME_ERROR",
        "hangs": "TIMEOUT",
        "backend": "INVALID",
        "limits": "INVALID",
        "unknown-field": "INVALID",
        "reference": "REFERENCE_ERROR",
    }
    lines = [
        json.dumps(plain),
        json.dumps(named),
        task("wrong", "x = x + 1"),
        task("raises", "raise KeyError(1)"),
        task("crashes", "os.kill(os.getpid(), signal.SIGSEGV)"),
        task("hangs", "while True: pass", timeouts={"compile_timeout": 1}),
        task("backend", backend="abacus"),
        task("limits", num_perf_trials=-1),
        task("unknown-field", no_such_field=1),
        task("reference", reference_code="raise OSError('no reference')"),
    ]
    tasks.write_text("\n".join(lines) + "\n")
    done = kerneldyno("batch", tasks, "--output", results, "--address", services.address, "--json")
    counted = {"requests": len(lines), "skipped": 0, "judged_again": 0}
    assert parsed(done) == {**counted, "outcomes": dict(Counter(expected.values()))}
    written = read(results)
    assert {line["id"]: line["outcome"] for line in written} == expected
    for line in written:
        assert line.keys() >= PROMISED, line["id"]
        assert (line["correct"], line["compiled"]) == (line["outcome"] == "CORRECT", line["compiled"] is True)
        assert isinstance(line["findings"], list)
        assert (line["speedup"] > 0) == (line["outcome"] == "CORRECT")


def test_batch_resumes_after_sigkill(services: LocalServices, tmp_path: Path) -> None:
    tasks, results = tmp_path / "tasks.jsonl", tmp_path / "results.jsonl"
    ids = [f"k{number}" for number in range(24)]
    tasks.write_text("".join(task(id, "time.sleep(0.1)", num_correct_trials=1) + "\n" for id in ids))
    command = ("batch", str(tasks), "--output", str(results), "--address", services.address, "--json")
    begun = subprocess.Popen([sys.executable, "-m", "kerneldyno.cli", *command], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while len(read(results)) < 4:
            assert begun.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        begun.kill()
        begun.wait()
    before = read(results)
    assert 4 <= len(before) < len(ids)
    with results.open("a") as stream:
        stream.write('{"id": "k23", "outcome": "CORR')  # a kill in the middle of a write leaves this
    report = parsed(kerneldyno(*command))
    assert (report["requests"], report["skipped"]) == (len(ids), len(before))
    assert report["outcomes"] == {"CORRECT": len(ids)}
    after = read(results)
    assert after[: len(before)] == before, "what was judged stays as it was"
    assert sorted(line["id"] for line in after) == sorted(ids)
    assert all(line.keys() >= PROMISED for line in after)
    report = parsed(kerneldyno(*command))
    assert (report["skipped"], report["outcomes"]) == (len(ids), {"CORRECT": len(ids)}), "nothing is left to do"


@pytest.mark.parametrize(("tasks", "address", "status"), [("no.jsonl", None, 2), ("tasks.jsonl", "127.0.0.1:1", 3)])
def test_batch_says_why_it_cannot(
    services: LocalServices, tmp_path: Path, tasks: str, address: str | None, status: int
) -> None:
    (tmp_path / "tasks.jsonl").write_text(task("a") + "\n")
    where = ("--address", address or services.address)
    done = kerneldyno("batch", tmp_path / tasks, "--output", tmp_path / "results.jsonl", *where)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
