"""`kerneldyno completion`: print a shell script that completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]


class Shell(StrEnum):
    """Shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]) -> None:
    """Print a shell's completion script.

    `kerneldyno --install-completion` installs it permanently. For one session: eval "$(kerneldyno completion bash)".
    """
    script = get_completion_script(prog_name="kerneldyno", complete_var="_KERNELDYNO_COMPLETE", shell=shell.value)
    print(script)
