"""Checks of commands that are not run: their syntax, and that their options, targets, extras and files exist."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
import sys
import tomllib

import typer

from kerneldyno.cli import app
from tests.docs.docs_pages import ROOT, Block, commands

_BETWEEN = {"|", ";", "&&", "||", "&", "(", ")", "|&"}
_MODULE = re.compile(r"kerneldyno\.[\w.]+")


def complaints(block: Block) -> list[str]:
    """Return what is wrong with a block that is not run."""
    if block.language == "python":
        try:
            compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            return [str(error)]
        return []
    if block.language not in ("console", "sh"):
        return []
    script = block.text if block.language == "sh" else "\n".join(one.text for one in commands(block.text))
    bash = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    return [*bash.stderr.splitlines(), *(said for words in simple_commands(script) for said in _of_command(words))]


def simple_commands(script: str) -> list[list[str]]:
    """Return the words of each simple command. Here-documents and quoted scripts are not searched."""
    script = re.sub(r"<<'?(\w+)'?[^\n]*\n.*?\n\1\n", "\n", script + "\n", flags=re.DOTALL).replace("\\\n", " ")
    found: list[list[str]] = []
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quotation that continues on the next line
            continue
        found.append([])
        for word in words:
            if word in _BETWEEN:
                found.append([])
            else:
                found[-1].append(word)
    return [words for words in found if words]


def _of_command(words: list[str]) -> list[str]:
    while words and ("=" in words[0] or words[0] in ("$", "do", "then", "nohup")):
        words = words[1:]
    if not words:
        return []
    program = words[0].rpartition("/")[2]
    found = []
    if program == "kerneldyno":
        found = _unknown_options(words[1:])
    elif program.startswith("python") and words[1:2] == ["-m"] and _MODULE.fullmatch(words[2]):
        page = help_of(words[2])
        found = [
            f"{words[2]} has no {o}" for o in options(words[3:]) if not re.search(rf"(?<![\w-]){o}(?![\w-])", page)
        ]
    elif program == "make":
        found = [f"make has no target {word}" for word in words[1:] if "=" not in word and word not in make_targets()]
    elif program in ("pip", "pip3"):
        asked = {
            one
            for word in words
            for extras in re.findall(r"(?:kerneldyno|\.)\[([\w,-]+)\]", word)
            for one in extras.split(",")
        }
        found = [f"pyproject.toml has no extra {one}" for one in sorted(asked - extras_known())]
    files = (word for word in words if re.match(r"(deploy|examples|tests|benchmarks|docs)/[\w./-]+\.\w+$", word))
    return [*found, *(f"{word} is not there" for word in files if not (ROOT / word).exists())]


def options(words: list[str]) -> list[str]:
    """Return the names of the options among arguments."""
    return [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]


def _unknown_options(words: list[str]) -> list[str]:
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]  # type: ignore[attr-defined]
    if hasattr(command, "commands") and words and not words[0].startswith("-"):
        return [f"kerneldyno has no command {words[0]}"]
    known = {"-h", "--help"} | {o for param in command.params for o in [*param.opts, *param.secondary_opts]}
    return [f"kerneldyno {command.name} has no {option}" for option in options(words) if option not in known]


@functools.cache
def help_of(module: str) -> str:
    """Return what `python -m module --help` prints."""
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{module}: {done.stderr}"
    return done.stdout


@functools.cache
def make_targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@functools.cache
def extras_known() -> set[str]:
    """Return the extras in pyproject.toml."""
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
