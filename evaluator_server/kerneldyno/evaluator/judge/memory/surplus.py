"""How much memory timing may take to be quick: for inputs drawn ahead with what is right for them, and for outputs that are
compared later."""

from __future__ import annotations

from ...devices.base import Device

#: For inputs that are drawn ahead, in bytes, and as much again for what is right for them; no more of a small device's
#: memory than this share.
_DRAWN_BYTES = {"cuda": 3 << 30, "cpu": 32 << 20}
_DRAWN_SHARE = 3 / 64
#: For outputs that were copied away and not yet compared.
_UNJUDGED_BYTES = {"cuda": 2 << 30, "cpu": 64 << 20}
_UNJUDGED_SHARE = 2 / 64
#: Input sets that are kept to be used again, changed, where drawing is slow.
_KEPT_SETS = 4
#: Outputs of one burst that are compared: of large ones, fewer. All together, of every size, a dozen or two are.
_CHECKED = 3
_CHECKED_LARGE = 1
_LARGE_BYTES = 16 << 20
#: Calls of one timing whose inputs and outputs may be there at once, and batches that are drawn ahead.
_CALLS = 400
_BATCHES = 16


def drawn_ahead(device: Device) -> int:
    """Return how many bytes of inputs may be drawn ahead, and how many of answers to them may lie there."""
    return device.at_most(_DRAWN_BYTES[device.kind], _DRAWN_SHARE)


def kept_sets(device: Device, input_bytes: int) -> int:
    """Return how many input sets of so many bytes may be kept to be used again."""
    return min(_KEPT_SETS, drawn_ahead(device) // input_bytes)


def checks(call_bytes: int) -> int:
    """Return how many outputs of a burst are looked at whose calls take so many bytes each, input and output."""
    return _CHECKED_LARGE if call_bytes > _LARGE_BYTES else _CHECKED


def unjudged(device: Device) -> int:
    """Return how many bytes of outputs may wait to be compared."""
    return device.at_most(_UNJUDGED_BYTES[device.kind], _UNJUDGED_SHARE)


def most_ahead(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return what all of it may come to for calls whose inputs and output take so many bytes.

    Nothing is drawn ahead that does not fit. Outputs that wait have the answers beside them that were drawn with their
    inputs; one that is larger than all of them may be does not wait.
    """
    sets = min(_CALLS, drawn_ahead(device) // input_bytes) + kept_sets(device, input_bytes)
    answers = min(_BATCHES * checks(input_bytes + output_bytes), drawn_ahead(device) // output_bytes)
    outputs = min(_CALLS, unjudged(device) // output_bytes)
    return sets * input_bytes + (answers + outputs) * output_bytes
