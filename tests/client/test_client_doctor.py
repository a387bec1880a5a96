"""`kerneldyno doctor verl` where there is no verl. tests/trainers has it where there is."""

from __future__ import annotations

import importlib.util

import pytest
from command import run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed here")


async def test_without_verl_it_says_what_to_install() -> None:
    ran = await run("doctor", "verl")
    assert ran.status == 1
    assert "not installed" in ran.out
    assert "pip install 'kerneldyno[verl]'" in ran.out


async def test_as_json() -> None:
    ran = await run("doctor", "verl", "--json")
    assert ran.status == 1
    assert [(check["name"], check["state"]) for check in ran.json] == [("verl", "failed")]


async def test_another_trainer_is_a_usage_error() -> None:
    ran = await run("doctor", "openrlhf")
    assert ran.status == 2
    assert "verl" in ran.err
