"""The sample of the corpora that `make test` runs: every threat, about the stated size, always the same."""

from __future__ import annotations

import random

import pytest

from kerneldyno.cli import corpus
from tests import sampling
from tests.corpus.judge_corpus import CORPUS, FOLDERS

pytestmark = pytest.mark.pure


def test_a_sample_of_all_attacks_has_every_threat_once() -> None:
    entries = list(corpus.entries(CORPUS / "attacks"))
    chosen = sampling.sample(entry.name for entry in entries)
    ids = [entry.id for entry in entries if entry.name in chosen]
    assert sorted(ids) == sorted({entry.id for entry in entries})


def test_about_one_in_so_many_of_the_others() -> None:
    for folder in FOLDERS[1:]:
        names = [entry.name for entry in corpus.entries(CORPUS / folder)]
        assert 0.5 < len(sampling.sample(names)) * sampling.SHARE / len(names) < 1.6, folder


def test_the_sample_does_not_depend_on_order_or_on_other_files() -> None:
    names = [entry.name for entry in corpus.entries(CORPUS / "honest")]
    chosen = sampling.sample(names)
    random.Random(1).shuffle(names)
    assert sampling.sample(names) == chosen
    assert sampling.sample([*names, "a_new_one"]) - {"a_new_one"} == chosen
    assert sampling.sample(["one"]) == {"one"}
