"""Memory of a real GPU: a lack of it has the right outcome, whoever took it, and neighbours do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import filling
from kerneldyno.evaluator.judge.comparison import compare, fused
from kerneldyno.evaluator.judge.comparison.compare import expect_like
from kerneldyno.evaluator.judge.comparison.evidence import Comparison
from kerneldyno.evaluator.judge.comparison.fingerprint import Fingerprint
from kerneldyno.evaluator.shared.spec import ToleranceRule
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator.judge_harness import Judge, candidate, request
from tests.evaluator.memory_problems import GREEDY, problem

pytestmark = pytest.mark.gpu

GIB = 1 << 30

TRANSPOSED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.ConvTranspose3d(48, 48, 5)

    def forward(self, x):
        return self.layer(x)

def get_inputs():
    return [torch.rand(16, 48, 24, 48, 48)]
"""
HOARDS = """import ctypes
        driver, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        for size in (1 << 34, 1 << 30, 1 << 26, 1 << 21):
            while driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0:
                pass"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge("--lanes", "4", "--spares", "2") as running:
        assert running.ready["device"]["kind"] == "cuda"
        yield running


@pytest.fixture(scope="module")
def device_bytes() -> int:
    return int(torch.cuda.get_device_properties(0).total_memory)


def among_honest_ones(judge: Judge, asked: dict[str, Any]) -> dict[str, Any]:
    """Evaluate beside three honest candidates, check that these are accepted, and return the result."""
    honest = [judge.submit(request(candidate(), run_performance=True)) for _ in range(2)]
    token = judge.submit(asked)
    honest.append(judge.submit(request(candidate(), run_performance=True)))
    results: dict[str, Any] = {}
    while len(results) < 4:
        frame = judge._next()
        if frame["op"] == "result":
            results[frame["attempt"]] = frame["result"]
    assert [
        (results[one]["outcome"], results[one]["message"]) for one in honest if results[one]["outcome"] != "CORRECT"
    ] == []
    result: dict[str, Any] = results[token]
    return result


def test_a_reference_that_needs_half_as_much_again_as_there_is_is_too_large(judge: Judge, device_bytes: int) -> None:
    size = device_bytes * 3 // 2
    result = among_honest_ones(judge, problem(f"torch.empty({size}, dtype=torch.uint8, device=x.device)"))
    assert result["outcome"] == "PROBLEM_TOO_LARGE", result["message"]
    evidence = result["problem_too_large"]
    assert evidence["memory"] == "device"
    assert int(evidence["needed_bytes"]) >= size * 0.99
    assert 0.8 * device_bytes < int(evidence["device_bytes"]) < device_bytes


def test_inputs_that_need_half_as_much_again_are_told_by_their_sizes(judge: Judge, device_bytes: int) -> None:
    result = among_honest_ones(judge, problem(shape=f"{device_bytes * 3 // 8 // 1024}, 1024"))
    assert result["outcome"] == "PROBLEM_TOO_LARGE", result["message"]
    assert result["problem_too_large"]["stage"] == "inputs"
    assert int(result["problem_too_large"]["needed_bytes"]) >= 2.9 * device_bytes


def test_a_reference_that_leaks_harms_nobody(judge: Judge) -> None:
    leaks = "kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))"
    for _ in range(2):
        result = among_honest_ones(judge, problem(leaks, run_performance=True))
        assert result["outcome"] in ("CORRECT", "PROBLEM_TOO_LARGE"), result["message"]


def test_a_reference_that_takes_all_there_is_and_goes_on_harms_nobody(judge: Judge) -> None:
    result = among_honest_ones(judge, problem(GREEDY, run_performance=True))
    assert result["outcome"] in ("CORRECT", "PROBLEM_TOO_LARGE"), result["message"]


def test_a_candidate_has_a_limit_of_its_own_which_a_request_can_raise(judge: Judge) -> None:
    takes = "torch.empty(6 << 30, dtype=torch.uint8, device=x.device)"
    result = among_honest_ones(judge, problem(takes=takes))
    assert result["outcome"] == "OUT_OF_MEMORY", result["message"]
    limit = int(result["out_of_memory"]["limit_bytes"])
    assert 4 * GIB < limit < 5 * GIB
    assert result["memory_use"]["candidate_limit_bytes"] == str(limit)
    result = judge.evaluate(problem(takes=takes, candidate_device_memory_bytes=str(8 * GIB)))
    assert result["outcome"] == "CORRECT", result["message"]


def test_outputs_that_are_kept_to_be_looked_at_again_are_not_of_the_candidates_share(judge: Judge) -> None:
    large = "return x.repeat(1 << 15, 1)"  # 512 MiB for each output, and two are kept
    result = judge.evaluate(problem(large, takes=large, candidate_device_memory_bytes=str(800 << 20)))
    assert result["outcome"] == "CORRECT", result["message"]
    assert int(result["memory_use"]["candidate_limit_bytes"]) == 800 << 20


def test_a_candidate_that_hoards_the_device_past_its_limit_costs_nobody_a_verdict(judge: Judge) -> None:
    result = among_honest_ones(judge, problem(takes=HOARDS, run_performance=True))
    assert result["outcome"] in ("OUT_OF_MEMORY", "RUNTIME_ERROR", "CORRECT"), result["message"]


def test_the_same_transposed_convolution_is_the_same(judge: Judge) -> None:
    asked = request(TRANSPOSED.replace("class Model", "class ModelNew"), backend="torch", reference_code=TRANSPOSED)
    for result in (judge.evaluate({**asked, "stress_inputs": True, "num_correct_trials": 5}) for _ in range(2)):
        assert result["outcome"] == "CORRECT", result["message"]


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture
def even_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_LEAST", 1)


@pytest.mark.usefixtures("even_small_ones")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 1000, 40_000, (1 << 20) + 3])
def test_fused_errors_are_those_of_torch(dtype: torch.dtype, count: int) -> None:
    right = torch.randn(count, device="cuda", dtype=torch.float64)
    got = (right + 1e-3 * torch.randn_like(right)).to(dtype)
    for wanted in {id(each): each for each in (right, right.to(dtype))}.values():
        found = fused.errors(got, wanted, 0.5, 0.25)
        assert found is not None
        off = (got.double() - wanted.double()).abs()
        share = off / (0.5 + 0.25 * wanted.double().abs())
        torch.testing.assert_close(found, torch.stack((off.max(), share.max())), rtol=1e-4, atol=1e-7)
    got[count // 2] = float("nan")
    found = fused.errors(got, right, 0.5, 0.25)
    assert found is not None
    assert found.tolist() == [float("inf")] * 2


@pytest.mark.usefixtures("even_small_ones")
@pytest.mark.parametrize("where", [0, 12_345, (1 << 20) + 2])
def test_a_single_wrong_element_is_found(where: int) -> None:
    right = torch.randn((1 << 20) + 3, device="cuda")
    got = right.clone()
    rule = ToleranceRule(pb.Tolerance.PRESET_CALIBRATED, None, None)
    for wrong, mismatch in ((0.0, False), (0.01, True), (float("nan"), True)):
        got[where] = right[where] + wrong
        result = Comparison()
        compare._compare_leaf(result, "output", expect_like(right), got, rule)
        assert (result.mismatch is not None) is mismatch


@pytest.mark.usefixtures("even_small_ones")
def test_a_fingerprint_on_a_gpu_changes_with_every_bit() -> None:
    from kerneldyno.evaluator.devices import open_device

    prints = Fingerprint(open_device("cuda:0"))
    data = torch.randint(256, (1 << 22,), dtype=torch.uint8, device="cuda")
    before = prints.of(data)
    assert prints.of(data.clone()) == before
    for at in (0, 4095, 1 << 21, (1 << 22) - 1):
        data[at] ^= 128
        assert prints.of(data) != before
        data[at] ^= 128
    assert prints.of(data) == before
    assert fused._Switch.works


def test_large_parameters_are_drawn_by_the_device_and_the_same_under_the_same_seed() -> None:
    device = torch.device("cuda")

    def made() -> torch.Tensor:
        torch.manual_seed(3)
        with filling.by_device(device):
            return torch.nn.Linear(4096, 4096).weight.detach()

    one, other = made(), made()
    assert one.device.type == "cpu"
    assert torch.equal(one, other)
    assert float(one.abs().max()) <= 1 / 64
    assert abs(float(one.std()) - 1 / 64 / 3**0.5) < 1e-4
