"""The number of kernels that an operation of a reference launches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerneldyno.evaluator.toolkits.counting import _kernels

pytestmark = pytest.mark.pure

RECURRENT = torch.ops.aten._cudnn_rnn.default
NAMES = [argument.name for argument in RECURRENT._schema.arguments]


def recurrent(**changes: Any) -> int:
    """Return the number of kernels of two recurrent layers, unless changed on 7 steps of 3 sequences."""
    given: dict[str, Any] = dict.fromkeys(NAMES)
    given |= {"input": torch.zeros(7, 3, 5), "num_layers": 2, "batch_first": False, "bidirectional": False}
    given |= {"batch_sizes": []} | changes
    return _kernels(RECURRENT, list(given.values()), {})


@pytest.mark.parametrize(
    ("changes", "kernels"),
    [
        ({}, 28),
        ({"bidirectional": True}, 56),
        ({"batch_first": True}, 12),
        ({"input": torch.zeros(11, 5), "batch_sizes": [3, 3, 3, 2]}, 16),  # packed: the longest sequence has four steps
    ],
)
def test_recurrent_layers_launch_kernels_for_each_step(changes: dict[str, Any], kernels: int) -> None:
    assert recurrent(**changes) == kernels


def test_other_operations_launch_one() -> None:
    assert _kernels(torch.ops.aten.relu.default, [torch.zeros(3)], {}) == 1
