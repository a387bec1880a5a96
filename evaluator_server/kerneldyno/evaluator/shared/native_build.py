"""A library of native code to be built: its sources, its flags, and a digest that names exactly this build.

A candidate's own process describes builds, so `from_json` believes nothing. The digest says which artifact belongs to
which build; together with the toolchain it is the key of the build cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any

#: Name of the library that is built from a request's `kernel_files`.
NATIVE = "native"
#: Suffixes of files that a compiler is called for; all others are read by those.
CUDA_SUFFIXES = (".cu",)
CPP_SUFFIXES = (".cpp", ".cc", ".cxx", ".c")
#: Most files, and most characters in all of them and in all flags.
_MOST_FILES = 80
_MOST_CHARACTERS = 4 << 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ARCHITECTURES = re.compile(r"[0-9A-Za-z.+; ]{0,100}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
#: The lines that `load_inline` writes in front of a source. Compilers should count the candidate's own lines.
_PREAMBLES = {
    "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n": "cuda_sources",
    "#include <torch/extension.h>\n": "cpp_sources",
}
_OWN_LINES = re.compile(r'^#line 1 "(cuda_sources|cpp_sources)"\n', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """One library: pairs of path and text, and the flags as torch.utils.cpp_extension takes them."""

    name: str
    files: tuple[tuple[str, str], ...]
    cpp_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    #: Whether CUDA's headers and libraries are used.
    with_cuda: bool = True
    #: What the candidate has put into TORCH_CUDA_ARCH_LIST; empty if nothing.
    architectures: str = ""

    @property
    def sources(self) -> list[str]:
        """The paths for which a compiler is called, in order."""
        return [path for path, _ in self.files if path.endswith(CUDA_SUFFIXES + CPP_SUFFIXES)]

    @property
    def text(self) -> str:
        """All files together."""
        return "\n".join(text for _, text in self.files)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of everything that the candidate determines, in hexadecimal."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()

    def with_own_lines(self) -> NativeBuild:
        """Return the build with directives that make compilers count the candidate's own lines of `load_inline`."""
        return replace(self, files=tuple((path, _count_own_lines(text)) for path, text in self.files))

    @property
    def shown(self) -> dict[str, str]:
        """The texts that compilers quote in messages, by the name that they give them."""
        names: dict[str, str] = {}
        for path, text in self.files:
            own = _OWN_LINES.search(text)
            names[own[1] if own else PurePosixPath(path).name] = text[own.end() :] if own else text
        return names

    def to_json(self) -> dict[str, Any]:
        """Return the form that `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Any) -> NativeBuild:
        """Read the output of `to_json`, which a candidate may have written. Raises ValueError."""
        try:
            build = cls(
                name=str(said["name"]),
                files=tuple((str(path), str(text)) for path, text in said["files"]),
                cpp_flags=tuple(map(str, said["cpp_flags"])),
                cuda_flags=tuple(map(str, said["cuda_flags"])),
                link_flags=tuple(map(str, said["link_flags"])),
                with_cuda=said["with_cuda"] is True,
                architectures=str(said["architectures"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no description of a build: {error}") from None
        build.check()
        return build

    def check(self) -> None:
        """Raise ValueError if names, paths or sizes are out of bounds."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"the name {self.name[:100]!r} is not an identifier")
        if not self.sources or len(self.files) > _MOST_FILES or len(dict(self.files)) != len(self.files):
            raise ValueError("a build has 1 to 80 files of different paths, and at least one source")
        for path, _ in self.files:
            if not all(map(_PART.fullmatch, path.split("/"))):
                raise ValueError(f"the path {path[:100]!r} is not allowed")
        stems = [PurePosixPath(path).name for path in self.sources]
        if len(set(stems)) != len(stems):
            raise ValueError("two sources have the same name")
        flags = (*self.cpp_flags, *self.cuda_flags, *self.link_flags)
        if len(self.text) + sum(map(len, flags)) > _MOST_CHARACTERS or len(flags) > _MOST_FILES:
            raise ValueError("sources or flags are too long")
        if not _ARCHITECTURES.fullmatch(self.architectures):
            raise ValueError(f"{self.architectures[:100]!r} is no list of architectures")
        if any("\0" in text or "\n" in text for text in flags):
            raise ValueError("a flag has a line break")
        "\n".join((self.text, *flags)).encode()  # raises if it is no text of Unicode


def _count_own_lines(text: str) -> str:
    for preamble, name in _PREAMBLES.items():
        if text.startswith(preamble):
            return f'{preamble}#line 1 "{name}"\n{text.removeprefix(preamble)}'
    return text


def of_files(
    files: tuple[tuple[str, str], ...],
    cuda_flags: tuple[str, ...],
    cpp_flags: tuple[str, ...],
    libraries: tuple[str, ...],
) -> NativeBuild | None:
    """Return the build of a request's `kernel_files`, or None if they have no native source."""
    native = tuple(sorted((path, text) for path, text in files if not path.endswith(".py")))
    build = NativeBuild(NATIVE, native, cpp_flags, cuda_flags, tuple(f"-l{name}" for name in libraries), with_cuda=True)
    cuda = any(path.endswith(CUDA_SUFFIXES) for path in build.sources) or "cuda" in build.text
    return replace(build, with_cuda=cuda) if build.sources else None
