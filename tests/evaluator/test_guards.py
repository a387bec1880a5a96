"""Guard zones around the tensors that a call makes, without a judge."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.runners.answers import read_call
from kerneldyno.evaluator.judge.runners.handle import RunnerGarbled
from kerneldyno.evaluator.runner import guards

CPU = open_device("cpu:0")
X = torch.randn(4, 8)


@pytest.fixture(autouse=True)
def _without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that no other test of this process has imported what makes guards impossible."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)


def made_by(make: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, guards.Guards]:
    with guards.guarded(CPU) as zones, torch.no_grad():
        made = make()
    assert zones is not None
    return made, zones


def write(made: torch.Tensor, at: int, count: int = 4) -> None:
    """Write bytes at an offset from the beginning of a tensor."""
    ctypes.memset(made.data_ptr() + at, 0x11, count)


MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "empty": lambda: torch.empty(4, 8),
    "empty_like": lambda: torch.empty_like(X),
    "empty_like with another dtype": lambda: torch.empty_like(X, dtype=torch.int8),
    "empty_strided": lambda: torch.empty_strided((4, 8), (1, 4)),
    "new_empty": lambda: X.new_empty(4, 8),
    "new_empty_strided": lambda: X.new_empty_strided((4, 8), (8, 1)),
    "zeros": lambda: torch.zeros(4, 8),
    "ones_like": lambda: torch.ones_like(X),
    "full": lambda: torch.full((4, 8), 3.0),
    "clone": X.clone,
    "contiguous": lambda: X.t().contiguous(),
    "cast": X.half,
    "product": lambda: X @ X.t(),
    "operator": lambda: torch.relu(X),
    "cat": lambda: torch.cat([X, X]),
    "scalar": X.sum,
    "with gaps": lambda: torch.empty_strided((4, 8), (16, 1)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_write_beside_what_an_operator_makes_is_seen(name: str) -> None:
    made, zones = made_by(MAKERS[name])
    assert zones.broken() == []
    last = sum((size - 1) * step for size, step in zip(made.shape, made.stride(), strict=True))
    write(made, (last + 1) * made.element_size() + 8)
    write(made, -20)
    behind, before = sorted(zones.broken(), key=lambda zone: not zone["behind"])
    assert (behind["behind"], behind["nbytes"], behind["distance"]) == (True, 4, 8)
    assert (before["behind"], before["nbytes"], before["distance"]) == (False, 4, 16)
    assert behind["shape"] == list(made.shape)
    assert behind["dtype"] == str(made.dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", MAKERS)
def test_guarded_tensors_are_like_others(name: str) -> None:
    guarded, _ = made_by(MAKERS[name])
    plain = MAKERS[name]()
    assert (guarded.shape, guarded.stride(), guarded.dtype) == (plain.shape, plain.stride(), plain.dtype)
    assert guarded.storage_offset() == 0
    assert guarded.untyped_storage().nbytes() == plain.untyped_storage().nbytes()
    assert guarded._base is None
    assert type(guarded) is torch.Tensor
    if "empty" not in name and "gaps" not in name:
        assert torch.equal(guarded, plain)
    assert guarded.add_(1).view(-1).data_ptr() == guarded.data_ptr() if guarded.is_contiguous() else True
    assert guarded.as_strided((2, 2), (1, 1)).shape == (2, 2) if guarded.numel() > 2 else True


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64),
        *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2),
    ],
    ids=str,
)
def test_every_dtype_can_be_guarded(dtype: torch.dtype) -> None:
    made, zones = made_by(lambda: torch.empty(4, 8, dtype=dtype))
    write(made, made.nbytes)
    assert [zone["dtype"] for zone in zones.broken()] == [str(dtype).removeprefix("torch.")]


def test_layouts_are_kept() -> None:
    like = torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)
    made, _ = made_by(lambda: torch.empty_like(like))
    assert made.stride() == like.stride()
    made, _ = made_by(lambda: like.relu())
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_views_and_changes_in_place_belong_to_the_tensor_that_they_are_of() -> None:
    with guards.guarded(CPU) as zones, torch.no_grad():
        made = torch.empty(4, 8)
        made.view(-1)[3:5].fill_(1)
        assert made.t().data_ptr() == made.data_ptr()
        assert made.add_(1) is made
        assert torch.relu_(made) is made
        assert torch.add(made, 1, out=made) is made
        assert zones is not None
        assert len(zones._blocks) == 1


def test_gradients_pass_through() -> None:
    layer = torch.nn.Linear(8, 8)
    with guards.guarded(CPU) as zones:
        torch.relu(layer(X)).sum().backward()  # type: ignore[no-untyped-call]
    wanted, *_ = torch.autograd.grad(torch.relu(layer(X)).sum(), list(layer.parameters()))
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, wanted)
    assert zones is not None
    assert zones.broken() == []


def test_tensors_that_are_made_while_gradients_are_recorded_are_no_views() -> None:
    with guards.guarded(CPU), torch.enable_grad():
        made = torch.empty(4, 8)
        copied = X.clone()
        leaf = torch.zeros(4, 8, requires_grad=True)
    assert made._base is None
    assert copied._base is None
    made.mul_(leaf)
    made.sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None


def test_tensors_that_are_dropped_are_looked_at_and_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_MOST", 1 << 20)
    with guards.guarded(CPU) as zones:
        for number in range(100):
            made = torch.empty(10_000)
            if number == 3:
                write(made, made.nbytes)
            del made
    assert zones is not None
    assert len(zones._blocks) < 20
    assert len(zones.broken()) == 1


def test_nothing_that_compiles_is_imported() -> None:
    """It would take a second in every evaluation."""
    code = (
        "import sys, torch\n"
        "from kerneldyno.evaluator.devices import open_device\n"
        "from kerneldyno.evaluator.runner import guards\n"
        "with guards.guarded(open_device('cpu:0')) as zones:\n"
        "    torch.relu(torch.empty(3))\n"
        "assert len(zones._blocks) == 2\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_compiled_code_is_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", object())
    with guards.guarded(CPU) as zones:
        assert zones is None


ZONE = {"behind": True, "nbytes": 3, "distance": 8, "dtype": "float32", "shape": [4]}


def answer(*broken: Any) -> dict[str, Any]:
    return {"structure": None, "specs": [], "launches": 0, "seconds": 0.1, "broken": list(broken)}


def test_what_a_runner_says_about_zones_is_read_with_suspicion() -> None:
    (zone,) = read_call(answer(ZONE)).broken
    assert str(zone) == (
        "3 bytes behind the end of a float32 tensor of shape (4,), the nearest 8 bytes (2 elements) away"
    )
    assert len(read_call(answer(*[ZONE] * 1000)).broken) < 10
    assert "8 elements" in str(read_call(answer({**ZONE, "dtype": "nn"})).broken[0])
    for bad in ({"nbytes": -1}, {"distance": 1.5}, {"shape": [None]}, {"shape": 3}):
        with pytest.raises(RunnerGarbled):
            read_call(answer({**ZONE, **bad}))
    with pytest.raises(RunnerGarbled):
        read_call(answer("x"))
    with pytest.raises(RunnerGarbled):
        read_call({**answer(), "broken": 3})
