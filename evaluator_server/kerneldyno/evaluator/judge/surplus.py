"""How much memory timing may take to be quick: for inputs drawn ahead, and for outputs that are compared later."""

from __future__ import annotations

from ..devices.base import Device

#: For inputs that are drawn ahead, in bytes, and no more of a small device's memory than this share.
_DRAWN_BYTES = {"cuda": 3 << 30, "cpu": 32 << 20}
_DRAWN_SHARE = 3 / 64
#: For outputs that were copied away and not yet compared.
_UNJUDGED_BYTES = {"cuda": 2 << 30, "cpu": 64 << 20}
_UNJUDGED_SHARE = 2 / 64
#: Calls of one timing whose inputs and outputs may be there at once.
_CALLS = 400


def drawn_ahead(device: Device) -> int:
    """Return how many bytes of inputs may be drawn ahead."""
    return device.at_most(_DRAWN_BYTES[device.kind], _DRAWN_SHARE)


def unjudged(device: Device) -> int:
    """Return how many bytes of outputs may wait to be compared."""
    return device.at_most(_UNJUDGED_BYTES[device.kind], _UNJUDGED_SHARE)


def most_ahead(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return what both may come to for calls whose inputs and output take so many bytes.

    No set is drawn ahead that does not fit, and one output may wait in any case.
    """
    sets = min(_CALLS, drawn_ahead(device) // input_bytes)
    outputs = max(1, min(_CALLS, unjudged(device) // output_bytes))
    return sets * input_bytes + outputs * output_bytes
