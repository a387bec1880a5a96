"""Fingerprints: equal for equal bytes, different for different bytes, and unpredictable."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.comparison import fingerprint
from kerneldyno.evaluator.judge.comparison.fingerprint import Fingerprint

CPU = open_device("cpu:0")


def data(words: int) -> torch.Tensor:
    return torch.randint(-(1 << 31), 1 << 31, (words,), dtype=torch.int32).view(torch.uint8)


@pytest.mark.parametrize("words", [1, 64, 1000, 4096])
def test_the_same_bytes_have_the_same_one(monkeypatch: pytest.MonkeyPatch, words: int) -> None:
    monkeypatch.setattr(fingerprint, "_WORDS", 300)  # long data has several parts, of which the last one is shorter
    prints, bytes_ = Fingerprint(CPU), data(words)
    assert prints.of(bytes_) == prints.of(bytes_.clone())


@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("at", [0, 1199, 1200, 3999])
def test_one_bit_makes_another(monkeypatch: pytest.MonkeyPatch, at: int, bit: int) -> None:
    monkeypatch.setattr(fingerprint, "_WORDS", 300)
    prints, bytes_ = Fingerprint(CPU), data(1000)
    before = prints.of(bytes_)
    bytes_[at] ^= 1 << bit
    assert prints.of(bytes_) != before


def test_signs_and_order_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "_WORDS", 64)
    prints = Fingerprint(CPU)
    values = torch.rand(256)
    before = prints.of(values.view(torch.uint8))
    flipped = values.clone()
    flipped[[3, 99]] *= -1
    swapped = values.clone()
    swapped[[3, 67]] = values[[67, 3]]  # the same position in two parts
    for other in (flipped, swapped, values.roll(64)):
        assert prints.of(other.view(torch.uint8)) != before


def test_each_candidate_has_a_key_of_its_own() -> None:
    bytes_ = data(64)
    assert len({Fingerprint(CPU).of(bytes_) for _ in range(20)}) == 20


FUSED = """
import torch
from kerneldyno.evaluator.judge.comparison import fused

MASK = (1 << 64) - 1

def splitmix(value):
    value = value * 0x9E3779B97F4A7C15 & MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31

count = 40_000  # two programs, the second one not full
words = torch.randint(-(1 << 31), 1 << 31, (count,), dtype=torch.int32)
key, more = (1 << 61) + 12345, (1 << 61) + 678
found = torch.empty(2, dtype=torch.int64)
fused._weighted_sum[(2,)](words, found, count, key, more, 1024, 32)
wanted = sum(word * (splitmix(at + key) ^ more) for at, word in enumerate(words.tolist())) & MASK
assert int(found.sum()) & MASK == wanted, (int(found.sum()) & MASK, wanted)

def errors(got, wanted, absolute, relative):
    wide = torch.float64 in (got.dtype, wanted.dtype)
    found = torch.empty((2, 2), dtype=torch.float64 if wide else torch.float32)
    fused._errors[(2,)](got, wanted, found, got.numel(), absolute, relative, wide, 1024, 32)
    return found.amax(0).tolist()

got, right = torch.randn(count), torch.randn(count)
off = (got - right).abs()
seen = errors(got, right, 0.5, 0.25)
torch.testing.assert_close(torch.tensor(seen), torch.stack((off.max(), (off / (0.5 + 0.25 * right.abs())).max())))
assert errors(right, right, 0.5, 0.0) == [0.0, 0.0]
seen = errors(got, right.double(), 0.5, 0.0)
assert abs(seen[0] - float((got.double() - right.double()).abs().max())) < 1e-12
for bad in (float("nan"), float("inf")):
    got[count - 1] = bad
    assert errors(got, right, 0.5, 0.0) == [float("inf")] * 2
right[count - 1] = float("inf")
assert errors(got, right, 0.5, 0.0) == [float("inf")] * 2  # which is right, and the long way says so
print("fused kernels are right")
"""


def test_fused_kernels_in_tritons_interpreter_do_what_they_say() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FUSED], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "fused kernels are right", done.stderr[-3000:]
