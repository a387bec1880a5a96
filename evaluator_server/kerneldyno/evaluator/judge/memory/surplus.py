"""How much additional memory timing may take: for inputs drawn ahead, their answers, and outputs compared later."""

from __future__ import annotations

from ...devices.base import Device

#: Bytes for inputs that are drawn ahead, and as much again for their answers. On a small device they are limited to
#: this share of the memory.
_DRAWN_BYTES = {"cuda": 3 << 30, "cpu": 32 << 20}
_DRAWN_SHARE = 3 / 64
#: Bytes for outputs that were copied away and not yet compared.
_UNJUDGED_BYTES = {"cuda": 2 << 30, "cpu": 64 << 20}
_UNJUDGED_SHARE = 2 / 64
#: Input sets that are kept, to be changed and used again if drawing is slow.
_KEPT_SETS = 4
#: Outputs of one burst that are compared; fewer if they are large. In all, a dozen or two are compared, of any size.
_CHECKED = 3
_CHECKED_LARGE = 1
_LARGE_BYTES = 16 << 20
#: Calls of one timing whose inputs and outputs may exist at once, and batches that are drawn ahead.
_CALLS = 400
_BATCHES = 16


def drawn_ahead(device: Device) -> int:
    """Return how many bytes of inputs may be drawn ahead, and how many bytes of answers to them may be kept."""
    return device.at_most(_DRAWN_BYTES[device.kind], _DRAWN_SHARE)


def kept_sets(device: Device, input_bytes: int) -> int:
    """Return how many input sets of this size may be kept to be used again."""
    return min(_KEPT_SETS, drawn_ahead(device) // input_bytes)


def checks(call_bytes: int) -> int:
    """Return how many outputs of a burst are checked, if one call's input and output take `call_bytes`."""
    return _CHECKED_LARGE if call_bytes > _LARGE_BYTES else _CHECKED


def unjudged(device: Device) -> int:
    """Return how many bytes of outputs may wait to be compared."""
    return device.at_most(_UNJUDGED_BYTES[device.kind], _UNJUDGED_SHARE)


def most_ahead(device: Device, input_bytes: int, output_bytes: int) -> int:
    """Return the most bytes that all of this may take together, for calls with inputs and outputs of these sizes.

    Nothing is drawn ahead that does not fit. Waiting outputs keep the answers that were drawn with their inputs. An
    output that is larger than the limit does not wait.
    """
    sets = min(_CALLS, drawn_ahead(device) // input_bytes) + kept_sets(device, input_bytes)
    answers = min(_BATCHES * checks(input_bytes + output_bytes), drawn_ahead(device) // output_bytes)
    outputs = min(_CALLS, unjudged(device) // output_bytes)
    return sets * input_bytes + (answers + outputs) * output_bytes
