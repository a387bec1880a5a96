"""The plug-in of docs/extending.md (examples/plugin): found by entry points, and used by a real judge and services."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.client import Client, EvalRequest, EvalResult, LocalServices
from kerneldyno.evaluator import precision, spec, toolkits
from kerneldyno.evaluator.backends import Backend
from kerneldyno.evaluator.server import registry
from kerneldyno.evaluator.toolkits import Toolkit
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, request

PLUGIN = Path(__file__).parents[2] / "examples/plugin"
REFERENCE = (PLUGIN / "reference.py").read_text()
CANDIDATE = (PLUGIN / "candidate.py").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site directory in which the plug-in is installed as by pip: the package and its metadata."""
    directory = tmp_path_factory.mktemp("site")
    shutil.copytree(PLUGIN / "kerneldyno_numpy", directory / "kerneldyno_numpy")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = directory / f"kerneldyno_numpy-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return directory


@pytest.fixture(scope="module")
def python_path(site: Path) -> str:
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="module")
def judge(python_path: str) -> Iterator[Judge]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge_harness, "DEVICE", "cpu:0")  # NumPy supports the CPU only
        with Judge(environment={"PYTHONPATH": python_path}) as running:
            yield running


def asked(kernel_code: str, **changes: Any) -> dict[str, Any]:
    return request(kernel_code, reference_code=REFERENCE, backend="numpy", toolkit="pairwise", **changes)


def test_old_names_of_what_plug_ins_import_stay() -> None:
    assert spec.EvalSpec is spec.ProblemSpec is toolkits.EvalSpec is toolkits.ProblemSpec
    assert precision.round_to is toolkits.round_to


def test_names_are_served_and_objects_are_what_they_must_be(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    names = registry.backend_names()
    assert (names[:3], names[-1]) == (("triton", "cuda", "torch"), "numpy")
    assert registry.toolkit_names() == ("kernelbench", "kernel_simple", "pairwise")
    (backend,) = metadata.entry_points(group="kerneldyno.backends", name="numpy")
    (toolkit,) = metadata.entry_points(group="kerneldyno.toolkits", name="pairwise")
    loaded_backend, loaded_toolkit = backend.load(), toolkit.load()
    assert isinstance(loaded_backend, Backend)
    assert isinstance(loaded_toolkit, Toolkit)
    assert (loaded_backend.name, loaded_toolkit.name) == ("numpy", "pairwise")


def test_a_right_candidate_is_judged_and_timed(judge: Judge) -> None:
    result = judge.evaluate(asked(CANDIDATE, run_performance=True))
    assert result["outcome"] == "CORRECT", result
    assert result["correctness"]["timed_outputs_checked"] > 0
    assert result["speedup"] > 0


def test_a_wrong_candidate_is_found_out(judge: Judge) -> None:
    result = judge.evaluate(asked(CANDIDATE.replace("np.dot(difference, difference)", "np.abs(difference).sum()")))
    assert (result["outcome"], result["incorrect"]["kind"]) == ("INCORRECT", "values")


def test_the_plug_ins_own_tripwire_rejects_a_decoy(judge: Judge) -> None:
    decoy = "def pairwise(a, b):\n    return (a - b).square().sum()\n"
    result = judge.evaluate(asked(decoy))
    assert (result["outcome"], [finding["id"] for finding in result["findings"]]) == ("REJECTED", ["S19"])


def test_a_problem_that_cannot_be_built_is_not_the_candidates_fault(judge: Judge) -> None:
    result = judge.evaluate({**asked(CANDIDATE), "reference_code": "def other(a, b): return a"})
    assert result["outcome"] == "REFERENCE_ERROR"
    assert "reference" in result["reference_error"]["message"]


def test_services_offer_it_and_judge_with_it(python_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path)
    with LocalServices(devices="cpu", lanes=1) as services, Client(services.address) as client:
        capabilities = client.capabilities()
        assert "numpy" in capabilities.backends
        assert "pairwise" in capabilities.toolkits
        result = client.evaluate_once(
            EvalRequest(
                reference_code=REFERENCE,
                kernel_code=CANDIDATE,
                backend="numpy",
                toolkit="pairwise",
                num_perf_trials=5,
            )
        )
    assert result.outcome == EvalResult.CORRECT, result.message
