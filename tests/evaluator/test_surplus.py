"""What timing may draw ahead and keep, by the sizes of inputs and outputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kerneldyno.evaluator.devices.base import Device
from kerneldyno.evaluator.judge.memory.surplus import drawn_ahead, most_ahead, unjudged

pytestmark = pytest.mark.pure

MIB, GIB = 1 << 20, 1 << 30


def gpu(memory: int) -> Device:
    return cast(Device, SimpleNamespace(kind="cuda", at_most=lambda nbytes, share: min(nbytes, int(memory * share))))


@pytest.mark.parametrize(
    ("inputs", "outputs", "ahead"),
    [
        (1024, 512, 404 * 1024 + (48 + 400) * 512),  # three answers for each of sixteen batches
        (64 * MIB, 64 * MIB, (48 + 4 + 16 + 32) * 64 * MIB),
        (GIB, GIB, (3 + 3 + 3 + 2) * GIB),
        (2 * GIB, 4 * GIB, (1 + 1) * 2 * GIB),  # neither an answer nor a waiting output fits
        (4 * GIB, 256, (16 + 400) * 256),  # no input set fits
        (16 * GIB, 8 * GIB, 0),
    ],
)
def test_no_set_is_planned_for_that_is_not_drawn_and_answers_are(inputs: int, outputs: int, ahead: int) -> None:
    assert most_ahead(gpu(140 * GIB), inputs, outputs) == ahead


def test_small_devices_give_less() -> None:
    assert drawn_ahead(gpu(16 * GIB)) == 768 * MIB
    assert unjudged(gpu(16 * GIB)) == 512 * MIB
