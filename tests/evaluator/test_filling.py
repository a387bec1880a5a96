"""Large random parameters drawn by a GPU are the same on both sides, and nothing else changes."""

from __future__ import annotations

import pytest
import torch

from kerneldyno.evaluator.devices import filling

pytestmark = pytest.mark.pure

CPU = torch.device("cpu")


def test_on_the_cpu_device_nothing_is_changed() -> None:
    before = torch.Tensor.uniform_
    with filling.by_device(CPU):
        assert torch.Tensor.uniform_ is before


def test_afterwards_everything_is_as_before_also_where_a_constructor_fails() -> None:
    before = torch.Tensor.uniform_, torch.Tensor.normal_

    def construct() -> None:
        with filling.by_device(torch.device("cuda")):
            assert torch.Tensor.uniform_ is not before[0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        construct()
    assert (torch.Tensor.uniform_, torch.Tensor.normal_) == before


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all draws. The CPU acts as the device that draws large tensors, seven elements at a time."""
    monkeypatch.setattr(filling, "_LARGE", 10)
    monkeypatch.setattr(filling, "_CHUNK", 7)
    seen: list[tuple[int, ...]] = []
    for name in filling._METHODS:
        original = getattr(torch.Tensor, name)

        def noted(tensor: torch.Tensor, *bounds: float, generator: torch.Generator | None = None, original=original):  # type: ignore[no-untyped-def]
            seen.append(tuple(tensor.shape))
            return original(tensor, *bounds, generator=generator)

        monkeypatch.setattr(torch.Tensor, name, filling._filling(noted, CPU))
    return seen


def test_large_tensors_are_filled_in_parts_within_their_bounds(drawn: list[tuple[int, ...]]) -> None:
    layer = torch.nn.Linear(4, 5)
    assert drawn == [(7,), (7,), (7,), (5,)]  # the device drew the weight in parts, the host drew the bias
    assert bool((layer.weight.abs() <= 0.5).all())
    assert len(layer.weight.unique()) == 20
    values = torch.empty(5, 4)
    assert values.normal_(100.0, 0.1) is values
    assert bool(((values - 100).abs() < 2).all())


def test_what_the_device_cannot_draw_for_the_host_draws(drawn: list[tuple[int, ...]]) -> None:
    torch.empty(4, 10)[:, ::2].uniform_()  # not contiguous
    torch.empty(20).uniform_(generator=torch.Generator().manual_seed(1))
    assert drawn == [(4, 5), (20,)]


def test_the_same_seed_gives_the_same_parameters(drawn: list[tuple[int, ...]]) -> None:
    def made() -> torch.Tensor:
        torch.manual_seed(5)
        return torch.nn.Linear(8, 8).weight.detach()

    assert torch.equal(made(), made())
