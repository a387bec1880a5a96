"""How many trials may be prepared together: what passes between judge and problem meanwhile takes memory."""

from __future__ import annotations

from ...devices.base import Device

#: Bytes that may pass at once. On a small device they are limited to this share of the memory.
_PASSING_BYTES = {"cuda": 2 << 30, "cpu": 32 << 20}
_PASSING_SHARE = 1 / 64
_MOST_TRIALS = 8
#: Most float64 runs of a trial, whose outputs take twice as many bytes.
_RUNS = 3
#: What a prepared trial takes: its inputs, as drawn and after the call; its outputs, also in float64, and their noise.
_INPUT_TIMES, _OUTPUT_TIMES = 2, 4


def trials_together(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return how many trials of these sizes may pass at once; 0 if not even the float64 runs of one may."""
    room = device.at_most(_PASSING_BYTES[device.kind], _PASSING_SHARE)
    return min(_MOST_TRIALS, room // max(1, _boxes(_RUNS, input_bytes, output_bytes)))


def most_passing(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return the bytes through which tensors of such trials pass, those of all that are prepared together."""
    trials = trials_together(device, input_bytes, output_bytes)
    return trials * _boxes(_RUNS, input_bytes, output_bytes) if trials else _boxes(1, input_bytes, output_bytes)


def most_prepared(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return the bytes that prepared trials take: some are tried while the next ones are prepared."""
    trials = max(1, trials_together(device, input_bytes, output_bytes))
    return 2 * trials * (_INPUT_TIMES * input_bytes + _OUTPUT_TIMES * output_bytes)


def _boxes(runs: int, input_bytes: int, output_bytes: int) -> int:
    """Return the bytes of inbox and outbox for one trial."""
    return runs * (input_bytes + 2 * output_bytes)
