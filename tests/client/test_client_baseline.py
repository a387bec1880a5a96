"""Tests of `kerneldyno baseline`: the times of references in a file, and candidates of another day beside them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.command import invoke

HERE = {
    "device_model": "NVIDIA H200",
    "driver_version": "580",
    "torch_version": "2.11.0",
    "triton_version": "3.6.0",
    "cuda_version": "13.0",
    "kerneldyno_version": "0.9",
}


def timing(microseconds: float) -> dict[str, Any]:
    return {"median_seconds": microseconds * 1e-6, "samples": 20}


def result(id: str, candidate: float, reference: float, **changes: Any) -> dict[str, Any]:
    """Return a result with these times in microseconds."""
    return {
        "id": id,
        "outcome": "CORRECT",
        "labels": {"problem": "level1/relu"},
        "speedup": reference / candidate,
        "candidate_timing": timing(candidate),
        "reference_timing": timing(reference),
        "reference_end_to_end": timing(reference + 10),
        "environment": HERE,
        "device_state": {"sm_clock_mhz_before": 1980},
        **changes,
    }


def written(path: Path, *results: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in results))
    return path


async def saved(folder: Path, *results: dict[str, Any]) -> Path:
    ran = await invoke("baseline", "save", written(folder / "then.jsonl", *results), "-o", folder / "base.json")
    assert ran.status == 0, ran.err
    return folder / "base.json"


async def compared(folder: Path, base: Path, *results: dict[str, Any]) -> Any:
    ran = await invoke("baseline", "compare", written(folder / "now.jsonl", *results), base, "--json")
    assert ran.status == 0, ran.err
    return ran.json


async def test_a_candidate_of_another_day_compares_with_the_stored_time(tmp_path: Path) -> None:
    base = await saved(tmp_path, result("a", 50, 100), result("b", 40, 104), result("c", 90, 102))
    (entry,) = json.loads(base.read_text())["baselines"]
    assert entry["median_seconds"] == pytest.approx(102e-6)
    assert entry["end_to_end_seconds"] == pytest.approx(112e-6)
    assert (entry["results"], entry["sm_clock_mhz"]) == (3, 1980)
    assert entry["spread"] == pytest.approx(1.04)
    found = await compared(tmp_path, base, result("new", 34, 103))
    assert found["comparisons"][0]["speedup"] == pytest.approx(3.0)
    assert found["comparisons"][0]["measured_speedup"] == pytest.approx(103 / 34)
    assert found["geometric_means"] == {"reference": pytest.approx(3.0)}
    assert found["warnings"] == []


async def test_every_form_and_every_workload_has_its_own_time(tmp_path: Path) -> None:
    def workload(name: str, candidate: float, reference: float) -> dict[str, Any]:
        compiled = {
            "backend": "REFERENCE_BACKEND_TORCH_COMPILE",
            "reference_timing": timing(reference / 2),
            "speedup": 1.0,
        }
        library = {"name": "flash-attn", "reference_timing": timing(reference / 4), "speedup": 0.5}
        failed = {"backend": "REFERENCE_BACKEND_TORCH_COMPILE_MAX_AUTOTUNE", "error": "no"}
        one = {
            "workload": {"name": name},
            "outcome": "CORRECT",
            "speedup": 2.0,
            "baselines": [compiled, library, failed],
        }
        return one | {"candidate_timing": timing(candidate), "reference_timing": timing(reference)}

    whole = {"candidate_timing": None, "reference_timing": None, "reference_end_to_end": None}
    workloads = [workload("M=1", 10, 20), workload("M=2", 10, 80)]
    base = await saved(tmp_path, result("a", 1, 1, workloads=workloads, **whole))
    found = await compared(
        tmp_path, base, result("new", 1, 1, workloads=[workload("M=1", 5, 20), workload("M=2", 5, 80)], **whole)
    )
    speedups = {(one["workload"], one["form"]): one["speedup"] for one in found["comparisons"]}
    assert speedups == {
        ("M=1", "reference"): pytest.approx(4.0),
        ("M=1", "torch_compile"): pytest.approx(2.0),
        ("M=1", "library flash-attn"): pytest.approx(1.0),
        ("M=2", "reference"): pytest.approx(16.0),
        ("M=2", "torch_compile"): pytest.approx(8.0),
        ("M=2", "library flash-attn"): pytest.approx(4.0),
    }
    assert found["geometric_means"] == {
        "library flash-attn": pytest.approx(2.0),
        "reference": pytest.approx(8.0),
        "torch_compile": pytest.approx(4.0),
    }


async def test_whatever_differs_between_the_days_is_said(tmp_path: Path) -> None:
    base = await saved(tmp_path, result("a", 50, 100))
    other = {**HERE, "device_model": "NVIDIA H100", "torch_version": "2.12.0"}
    slower = {"environment": other, "device_state": {"sm_clock_mhz_before": 1500}}
    found = await compared(tmp_path, base, result("x", 50, 120, **slower), result("y", 50, 120, **slower))
    assert found["warnings"] == [
        "device NVIDIA H200 then and NVIDIA H100 now (2 times)",
        "torch 2.11.0 then and 2.12.0 now (2 times)",
        "the clock was 1980 MHz then and 1500 MHz now (2 times)",
        "level1/relu: the reference took 1.20 times as long as the stored one (2 times)",
    ]
    ran = await invoke("baseline", "compare", tmp_path / "now.jsonl", base)
    assert "2.000" in ran.out
    assert "kerneldyno: device NVIDIA H200 then and NVIDIA H100 now (2 times)" in ran.err


async def test_problems_without_a_baseline_and_wrong_candidates_are_left_out(tmp_path: Path) -> None:
    base = await saved(tmp_path, result("a", 50, 100), result("wrong", 1, 1, outcome="INCORRECT"))
    elsewhere = result("b", 50, 100, labels={"problem": "level1/gelu"})
    found = await compared(tmp_path, base, elsewhere, result("c", 50, 100), result("d", 1, 100, outcome="REJECTED"))
    assert [one["id"] for one in found["comparisons"]] == ["c"]
    assert found["warnings"] == ["level1/gelu is not among the baselines"]
    ran = await invoke("baseline", "compare", written(tmp_path / "now.jsonl", elsewhere), base)
    assert ran.status == 2
    assert "no right, timed candidate" in ran.err


async def test_what_cannot_be_a_baseline_is_refused(tmp_path: Path) -> None:
    async def error(command: str, *arguments: object) -> str:
        ran = await invoke("baseline", command, *arguments)
        assert ran.status == 2
        assert "Traceback" not in ran.err
        return ran.err

    out = tmp_path / "base.json"
    wrong = written(tmp_path / "wrong.jsonl", result("a", 1, 1, outcome="INCORRECT"))
    assert "no result has the time of a reference" in await error("save", wrong, "-o", out)
    mixed = written(
        tmp_path / "mixed.jsonl", result("a", 1, 1), result("b", 1, 1, environment={**HERE, "driver_version": "575"})
    )
    assert "different devices or versions: driver 580 then and 575 now" in await error("save", mixed, "-o", out)
    assert not out.exists()
    (tmp_path / "text").write_text("hello\n")
    assert "holds no results" in await error("save", tmp_path / "text", "-o", out)
    assert "cannot read" in await error("save", tmp_path / "none", "-o", out)
    good = written(tmp_path / "good.jsonl", result("a", 1, 1))
    entry = {"problem": "p", "workload": "", "form": "eager", "end_to_end_seconds": 0, "results": 1, "spread": 1}
    entry |= {"median_seconds": 1e-5, "sm_clock_mhz": 1980, "environment": {}}
    odd = [{**entry, name: value} for name, value in (("median_seconds", "1"), ("environment", 5), ("results", "many"))]
    infinite = json.dumps({**entry, "median_seconds": float("inf")})
    rows = [*(json.dumps(one) for one in odd), infinite, "5", "[" * 100_000]
    for text in (
        *(f'{{"kerneldyno_baselines": 1, "baselines": [{row}]}}' for row in rows),
        "[]",
        "{}",
        "no",
        '{"kerneldyno_baselines": 1, "baselines": [{"problem": "p"}]}',
    ):
        out.write_text(text)
        assert "is not a file of baselines" in await error("compare", good, out)
    out.write_text('{"kerneldyno_baselines": 9, "baselines": []}')
    assert "is of version 9" in await error("compare", good, out)


async def test_one_document_can_be_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(result("a", 50, 100), indent=2))
    ran = await invoke("baseline", "save", tmp_path / "one.json", "-o", tmp_path / "base.json", "--json")
    assert (ran.status, ran.json["baselines"]) == (0, 1), ran.err


async def test_results_that_are_hostile_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are shown as they are, neither as markup nor as what steers a terminal; no time is infinite."""
    monkeypatch.delenv("COLUMNS", raising=False)  # otherwise the table is cut to that width
    labels = {"problem": "[red]p[/x]\x1b[2J"}
    library = {"name": "reference", "reference_timing": timing(7.0), "speedup": 0.1}
    rows = [result("[/a]", 50, 100, labels=labels, baselines=[library])]
    rows.append(result("b", 50, 100, labels=labels, reference_timing={"median_seconds": "Infinity"}))
    base = await saved(tmp_path, *rows)
    assert [one["form"] for one in json.loads(base.read_text())["baselines"]] == ["library reference", "reference"]
    assert json.loads(base.read_text())["baselines"][1]["median_seconds"] == pytest.approx(1e-4)
    ran = await invoke("baseline", "compare", tmp_path / "then.jsonl", base)
    assert ran.status == 0, ran.err
    assert "[/a]" in ran.out
    assert "[red]p[/x]" in ran.out
    assert "\x1b" not in ran.out + ran.err
    for data in (
        b"[" * 100_000,
        b"5\n",
        b'{"id": 5}\n',
        gzip.compress(json.dumps(rows[0]).encode())[:-12],
        b"\x1f\x8b\x08zzz",
    ):
        (tmp_path / "broken").write_bytes(data)
        ran = await invoke("baseline", "save", tmp_path / "broken", "-o", tmp_path / "none.json")
        assert ran.status == 2, data[:20]
        assert ran.err.startswith("kerneldyno: ")


async def test_workloads_of_one_name_or_of_none_are_kept_apart(tmp_path: Path) -> None:
    """FlashInfer's workloads have the name of their sizes, and may differ in their stored inputs only."""

    def workload(name: str, value: str, reference: float) -> dict[str, Any]:
        one = {"workload": {"name": name, "value_json": value}, "outcome": "CORRECT", "speedup": reference / 10}
        return one | {"candidate_timing": timing(10), "reference_timing": timing(reference)}

    rows = [("M=1", "0", 20.0), ("M=1", "1", 40.0), ("", '{"N": 3}', 80.0), ("", '{"N": 4}', 160.0)]
    whole = {"candidate_timing": None, "reference_timing": None, "reference_end_to_end": None}
    measured = result("a", 1, 1, workloads=[workload(*row) for row in rows], **whole)
    found = await compared(tmp_path, await saved(tmp_path, measured), measured)
    assert {one["workload"]: round(one["speedup"], 6) for one in found["comparisons"]} == {
        "M=1": 2.0,
        "M=1 (2)": 4.0,
        '{"N": 3}': 8.0,
        '{"N": 4}': 16.0,
    }
