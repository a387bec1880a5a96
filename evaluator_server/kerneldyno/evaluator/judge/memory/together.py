"""How many trials may be prepared together: what passes between judge and problem meanwhile takes memory."""

from __future__ import annotations

from ...devices.base import Device

#: Bytes that may pass at once. On a small device they are limited to this share of the memory.
_PASSING_BYTES = {"cuda": 1 << 30, "cpu": 32 << 20}
_PASSING_SHARE = 1 / 128
_MOST_TRIALS = 8
#: What passes in a trial's float64 runs, of which there are at most three, in multiples of its inputs and outputs.
_PRECISE_TIMES = 6
#: What a prepared trial takes: its inputs, as drawn and after the call; its outputs, also in float64, and their noise.
_INPUT_TIMES, _OUTPUT_TIMES = 2, 4


def trials_together(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return how many trials of these sizes may pass at once; 0 if not even the float64 runs of one may."""
    room = device.at_most(_PASSING_BYTES[device.kind], _PASSING_SHARE)
    return min(_MOST_TRIALS, room // (_PRECISE_TIMES * max(1, input_bytes + output_bytes)))


def most_together(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return the bytes that such trials take together: some are tried while the next ones are prepared."""
    trials = trials_together(device, input_bytes, output_bytes)
    passing = trials * _PRECISE_TIMES * (input_bytes + output_bytes)
    return passing + 2 * max(1, trials) * (_INPUT_TIMES * input_bytes + _OUTPUT_TIMES * output_bytes)
