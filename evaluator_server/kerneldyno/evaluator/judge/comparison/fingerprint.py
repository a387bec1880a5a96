"""Fingerprints of outputs, which show whether bytes have changed without a copy of them.

A fingerprint has a secret key that is used for one candidate only, so nobody can make other bytes with the same
fingerprint. It is a sum of 32-bit words times random 64-bit numbers, modulo 2**64. For two given arrays that differ,
the sums agree with a probability of at most 2**-32 (multiplicative universal hashing: Dietzfelbinger et al., 1997).
"""

from __future__ import annotations

import secrets

import torch

from ...devices.base import Device
from ..runners.work import numbers

#: Words per part. Parts share the numbers of their words, and each part is multiplied by a number of its own.
_WORDS = 1 << 22
_MODULUS = 1 << 64


class Fingerprint:
    """Takes fingerprints under one secret key."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._key = torch.empty(0, dtype=torch.int64, device=device.torch_device)
        self._factors: list[int] = []
        #: The same key for a GPU, which computes its numbers on the fly. The highest bit is set, so that all keys have
        #: one width.
        self._secrets = [secrets.randbits(61) | 1 << 61 for _ in range(2)]

    def of(self, data: torch.Tensor) -> int:
        """Return the fingerprint of bytes (uint8, 1-D, a multiple of four)."""
        words = data.view(torch.int32)
        if words.is_cuda:
            from . import fused  # imports Triton, which is not needed without a GPU

            if (total := fused.weighted_sum(words, *self._secrets)) is not None:
                return total
        self._lengthen(min(len(words), _WORDS))
        parts = [words[start : start + _WORDS] for start in range(0, len(words), _WORDS)]
        while len(self._factors) < len(parts):
            self._factors.append(secrets.randbits(64) | 1)
        sums: list[int] = numbers(torch.stack([(part * self._key[: len(part)]).sum() for part in parts]))
        return sum(total * factor for total, factor in zip(sums, self._factors, strict=False)) % _MODULUS

    def _lengthen(self, length: int) -> None:
        if len(self._key) >= length:
            return
        generator = torch.Generator(self._device.torch_device).manual_seed(secrets.randbits(63))
        low, high = -(1 << 63), (1 << 63) - 1
        more = torch.randint(
            low, high, (length - len(self._key),), generator=generator, device=self._device.torch_device
        )
        self._key = torch.cat((self._key, more))
