"""Tests of shell completion: the scripts, and what a real bash completes with them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.command import invoke

_PROGRAM = """#!{python}
import sys
sys.argv[0] = "kerneldyno"
from kerneldyno.cli import main
main()
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_scripts_ask_the_program_itself(shell: str) -> None:
    ran = await invoke("completion", shell)
    assert (ran.status, ran.err) == (0, "")
    assert f"_KERNELDYNO_COMPLETE=complete_{shell}" in ran.out


async def test_no_script_for_other_shells() -> None:
    ran = await invoke("completion", "csh")
    assert (ran.status, ran.out) == (2, "")
    assert "bash" in ran.err


async def test_bash_completes(tmp_path: Path) -> None:
    program = tmp_path / "kerneldyno"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    script = (await invoke("completion", "bash")).out
    asked = "\n".join(
        f"COMP_WORDS=(kerneldyno {words}) COMP_CWORD={words.count(' ') + 1}; _kerneldyno_completion kerneldyno\n"
        'echo "${COMPREPLY[@]}"'
        for words in ("und", "doctor --no-c")
    )
    ran = await asyncio.to_thread(
        subprocess.run,
        ["bash", "--norc", "-c", f"{script}\n{asked}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert ran.stdout.split("\n") == ["undrain", "--no-canary", ""], ran.stderr
