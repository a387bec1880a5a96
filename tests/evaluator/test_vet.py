"""Vetting: reports about strong, weak, random and broken problems, and stress that makes weak ones strong."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from kerneldyno.evaluator import vet
from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.problems import trial
from kerneldyno.evaluator.judge.problems.examination import examine, materials, survives
from kerneldyno.evaluator.judge.problems.mutants import MUTANTS
from kerneldyno.evaluator.shared.spec import ToleranceRule
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.slow

PROBLEMS = Path(__file__).parents[2] / "corpus" / "problems"
CPU = open_device("cpu:0")
CALIBRATED = ToleranceRule(pb.Tolerance.PRESET_CALIBRATED, None, None)
HALF, TWICE = "half of the data and zeros", "half of the data twice"
LINE, COPY = "a straight line through the input", "a copy of the input"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, as in a judge: more threads would only compete for a busy machine's cores."""
    before = torch.get_num_threads()
    CPU.warm_up()
    yield
    torch.set_num_threads(before)


def vet_weak(path: Path) -> vet.Report:
    """Vet one problem in a process that does nothing else."""
    CPU.warm_up()
    return vet.vet(path, CPU, CALIBRATED)


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest) -> Iterator[dict[Path, Future[vet.Report]]]:
    """Return the reports of the selected weak problems. Two run at a time, since each takes seconds of arithmetic."""
    items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    tests = [item for item in items if isinstance(item, pytest.Function)]
    paths = [item.callspec.params["weak"] for item in tests if "weak" in item.fixturenames]
    with ProcessPoolExecutor(min(2, len(paths)) or 1, multiprocessing.get_context("spawn")) as pool:
        yield {path: pool.submit(vet_weak, path) for path in paths}
        pool.shutdown(cancel_futures=True)


def problem(tmp_path: Path, returned: str, inputs: str = "torch.randn(32, 96)", made: str = "pass") -> Path:
    path = tmp_path / "problem.py"
    path.write_text(f"""
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x, *rest):
        return {returned}

def get_inputs():
    return [{inputs}]
""")
    return path


def vetted(path: Path, rule: ToleranceRule = CALIBRATED) -> vet.Report:
    return vet.vet(path, CPU, rule)


def row(report: vet.Report, mutant: str) -> vet.Row:
    (found,) = (each for each in report.rows if each.mutant == mutant)
    return found


def passing(path: Path) -> set[str]:
    """Return the mutants that pass one nominal trial of a problem."""
    spec = vet._spec(path.read_text(), CALIBRATED)
    built = build_local(spec.problem, CPU, 3)
    this, other = (trial.prepare(built, spec, CPU, 0) for _ in range(2))
    material = materials(built, this, other)
    return {mutant.name for mutant in MUTANTS if survives(mutant, material, this, spec)}


@pytest.mark.corpus
@pytest.mark.parametrize("weak", sorted(PROBLEMS.glob("weak_*.py")), ids=lambda path: path.stem)
def test_weak_public_problems_are_weak_by_allclose_and_strong_with_stress(
    reports: dict[Path, Future[vet.Report]], weak: Path
) -> None:
    report = reports[weak].result()
    assert report.lazy("allclose_1e2") != []
    assert report.lazy("with_stress") == []
    assert report.verdict in (vet.STRONG, vet.WITH_STRESS)
    assert len(report.stress) >= 6


@pytest.mark.parametrize(
    ("returned", "mutant", "told_by"),
    [
        ("torch.relu(x)", COPY, {"signs"}),
        ("F.hardsigmoid(x)", LINE, {"large"}),
        ("torch.cumprod(x, -1)", "the answer's first 64 columns", {"rows", "sparse", "sorted", "wave", "patch"}),
    ],
)
def test_a_mutant_names_the_stress_that_tells_it(tmp_path: Path, returned: str, mutant: str, told_by: set[str]) -> None:
    report = vetted(problem(tmp_path, returned, "torch.rand(16, 512)"))
    found = row(report, mutant)
    assert report.verdict == vet.WITH_STRESS
    assert (found.nominal, found.with_stress, found.allclose_1e4) == (True, False, True)
    assert found.told_by in told_by


@pytest.mark.parametrize("returned", ["torch.softmax(x, -1)", "x @ x.t()", "F.layer_norm(x, (96,))", "x.sum(-1)"])
def test_ordinary_problems_are_strong(tmp_path: Path, returned: str) -> None:
    report = vetted(problem(tmp_path, returned))
    assert (report.verdict, report.advice) == (vet.STRONG, "")
    assert report.lazy("nominal") == []
    assert report.noise_floor is not None
    assert report.noise_floor < 1e-4  # depends on the draw: 3e-6 for one softmax, 1.2e-5 for another


@pytest.mark.parametrize("returned", ["x * 0 + 3", "F.softmax(x, -1).sum(-1)", "x[:, :1] * 0"])
def test_a_constant_output_is_weak(tmp_path: Path, returned: str) -> None:
    report = vetted(problem(tmp_path, returned))
    assert report.verdict == vet.WEAK
    assert "another draw's answer" in report.lazy("with_stress")
    assert "another draw's mean" in report.advice


def test_an_input_that_is_not_read_is_named(tmp_path: Path) -> None:
    report = vetted(problem(tmp_path, "torch.relu(x)", "torch.randn(32, 96), torch.randn(8)"))
    assert report.lazy("with_stress") == ["the second input unread"]


@pytest.mark.parametrize(
    "returned", ["x * 2", "x", "x.sign()", "x.mean().expand(4, 4)", "torch.relu(x.sum(0)).expand(9, 96)"]
)
def test_an_operator_that_is_no_more_than_a_mutant_is_not_weak(tmp_path: Path, returned: str) -> None:
    report = vetted(problem(tmp_path, returned))
    assert report.verdict == vet.STRONG
    assert any(each.kind == "operator" for each in report.rows)


def test_tiers_that_are_not_told_apart_are_shown_and_no_weakness(tmp_path: Path) -> None:
    report = vetted(problem(tmp_path, "x.sign()"))
    assert report.to_json()["precision_told_apart"] == {
        "tf32 operands": False,
        "bfloat16 operands": False,
        "fp8 operands": False,
    }
    told = vetted(problem(tmp_path, "x * x")).to_json()["precision_told_apart"]
    assert set(told.values()) == {True}


def test_default_parameters_pass_only_where_parameters_are_the_defaults(tmp_path: Path) -> None:
    report = vetted(problem(tmp_path, "self.norm(x)", made="self.norm = torch.nn.LayerNorm(96)"))
    found = row(report, "default parameters")
    assert report.constants_replaced == ["norm.bias", "norm.weight"]
    assert (found.nominal, found.allclose_1e4) == (False, True)
    unread = vetted(problem(tmp_path, "self.norm(x)", made="self.norm = torch.nn.BatchNorm1d(96, affine=False)"))
    assert unread.verdict == vet.STRONG
    assert row(unread, "default parameters").kind == "operator"


@pytest.mark.parametrize(
    ("returned", "inputs", "expected"),
    [
        # Each passes because it is right by chance or by construction. Other mutants may pass, too.
        ("x", "torch.ones(8, 4)", {"ones"}),
        (
            "torch.cumsum(x, -1)",
            "torch.cat([torch.rand(8, 48), torch.zeros(8, 48)], -1)",
            {"the answer's first half held"},
        ),
        ("x[:, :64]", "torch.rand(8, 128)", {HALF}),
        ("x.reshape(8, -1, 8)[..., 0].sum(-1)", "torch.rand(8, 96)", {"every eighth element of the data"}),
        ("x[:1] * 1", "torch.rand(8, 96)", {"the first row of the data"}),
        ("(x > 0).float() * 7", "torch.randn(8, 96)", {"the signs of the data"}),
        ("F.pad(torch.exp(x), (0, 64))", "torch.rand(8, 64)", {"the answer's first 64 columns"}),
        ("rest[0] + 1", "torch.rand(8, 96), torch.rand(8, 4)", {"the first input unread"}),
    ],
)
def test_each_mutant_passes_where_it_should(tmp_path: Path, returned: str, inputs: str, expected: set[str]) -> None:
    assert expected <= passing(problem(tmp_path, returned, inputs))


def test_most_mutants_fail_on_an_ordinary_problem(tmp_path: Path) -> None:
    assert passing(problem(tmp_path, "torch.softmax(x, -1) * x")) == set()


@pytest.mark.parametrize("returned", ["F.dropout(x, 0.5, True)", "x + torch.rand_like(x)"])
def test_random_references_are_called_random(tmp_path: Path, returned: str) -> None:
    report = vetted(problem(tmp_path, returned))
    assert report.verdict == vet.RANDOM
    assert "draws random numbers" in report.advice


def test_an_answer_without_tensors_is_noted(tmp_path: Path) -> None:
    report = vetted(problem(tmp_path, "int((x > 0).sum())"))
    assert (report.verdict, report.rows) == (vet.STRONG, [])
    assert "returns no tensor" in report.notes[0]
    assert vetted(problem(tmp_path, "7")).verdict == vet.WEAK


def test_inputs_that_are_always_the_same_are_noted(tmp_path: Path) -> None:
    report = vetted(problem(tmp_path, "torch.exp(x)", "torch.linspace(0, 1, 96).repeat(32, 1)"))
    assert any("same values each time" in note for note in report.notes)


@pytest.mark.parametrize(
    ("source", "stage", "kind", "advice"),
    [
        ("class Model(\n", "build", "SyntaxError", "define class Model"),
        ("class Model: ...\n", "build", "AttributeError", "define class Model"),
        (
            "import torch\nModel = torch.nn.ReLU\ndef get_inputs():\n    return 5\n",
            "inputs",
            "TypeError",
            "must return",
        ),
        (
            "import torch\nModel = torch.nn.Flatten\ndef get_inputs():\n    return [{1}]\n",
            "inputs",
            "TypeError",
            "plain tensors",
        ),
        (
            "import torch\nModel = torch.nn.ReLU\ndef get_inputs():\n    return [torch.rand(2), 1, 2]\n",
            "reference",
            "TypeError",
            "Model must run",
        ),
    ],
)
def test_broken_problems_say_what_to_do(tmp_path: Path, source: str, stage: str, kind: str, advice: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    report = vetted(path)
    assert report.verdict == vet.BROKEN
    assert report.error is not None
    assert (report.error.stage, report.error.type) == (stage, kind)
    assert advice in report.advice


def test_an_output_that_is_nowhere_finite_is_broken(tmp_path: Path) -> None:
    report = vetted(problem(tmp_path, "x.log() * float('nan')"))
    assert report.verdict == vet.BROKEN
    assert "finite" in report.advice


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = vet.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_exit_status_is_that_of_the_weakest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relu = problem(tmp_path, "torch.relu(x)", "torch.rand(32, 96)").rename(tmp_path / "relu.py")
    status, out, _ = ran(capsys, relu, "--device", "cpu")
    assert status == 0
    assert "STRONG ONLY WITH STRESS" in out
    assert "no: signs" in out
    status, out, _ = ran(capsys, relu, problem(tmp_path, "x * 0"), "--device", "cpu", "--json")
    assert status == 1
    document: dict[str, Any] = json.loads(out)
    assert document["verdicts"] == {"strong only with stress": 1, "weak": 1}
    assert [each["verdict"] for each in document["problems"]] == ["strong only with stress", "weak"]
    assert COPY in document["problems"][0]["weak"]["allclose_1e4"]


def test_what_a_reference_prints_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = ran(capsys, problem(tmp_path, "print('noise') or x + 1"), "--device", "cpu", "--json")
    assert json.loads(out)["problems"][0]["verdict"] == vet.STRONG


def test_a_rule_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = problem(tmp_path, "torch.tanh(x)", "torch.rand(32, 96) * 1e-3")
    arguments = (path, "--device", "cpu", "--preset", "allclose", "--atol", 2, "--rtol", 0)
    status, out, _ = ran(capsys, *arguments)
    assert status == 1
    assert "WEAK" in out
    assert ran(capsys, path, "--device", "cpu")[0] == 0


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = ran(capsys, tmp_path / "nowhere.py", "--device", "cpu")
    assert (status, "nowhere.py" in err) == (2, True)
    status, _, err = ran(capsys, PROBLEMS / "weak_relu.py", "--device", "tpu")
    assert (status, "unknown device" in err) == (2, True)
    with pytest.raises(SystemExit):
        vet.main([str(PROBLEMS / "weak_relu.py"), "--rtol", "1"])


def test_the_bank_is_in_order() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    bits = [mutant.bits for mutant in MUTANTS if mutant.bits is not None]
    assert bits == sorted(bits, reverse=True)
    assert torch.finfo(torch.float32).eps < 2.0 ** -bits[0]


def test_examination_is_stopped_early_where_nothing_passes(tmp_path: Path) -> None:
    # This problem has almost no noise. For a softmax, one draw in a hundred is too noisy for the strongest stress, and
    # then a weaker one is tried.
    spec = vet._spec(problem(tmp_path, "x * x.abs().amax(-1, keepdim=True)").read_text(), CALIBRATED)
    built = build_local(spec.problem, CPU, 3)
    calls: list[int] = []
    answer = built.answer
    built.answer = lambda *given, **named: calls.append(1) or answer(*given, **named)  # type: ignore[method-assign,func-returns-value]
    found = examine(built, spec, CPU)
    at_first_try = 2 + len(found.held)  # two nominal draws, and one per kind of stress; then no mutant is left
    changed_data = 8  # halves, sampled, first row, signs, and the tiers of precision, which are tried together
    assert len(calls) == at_first_try + changed_data


def test_a_file_with_a_byte_order_mark_is_vetted_as_without(tmp_path: Path) -> None:
    path = problem(tmp_path, "torch.tanh(x)")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert vetted(path).error is None
