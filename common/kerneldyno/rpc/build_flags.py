"""Flags that a candidate may give to the compilers of its native code: a list of what is allowed.

A build runs nvcc and g++ with flags that a candidate chose, so a flag must not load code into a compiler, start another
program, read flags from a file, or choose what is written where. Allowed are optimisation, language, warnings,
definitions, architectures, folders of the candidate, and libraries by name. No allowed flag has a character with a
meaning for a shell, because nvcc starts its steps through one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Compiler = Literal["cuda", "cpp", "link"]

#: Most flags of each kind in one request.
MAX_FLAGS = 32
#: Longest flag in characters.
MAX_FLAG_CHARS = 200
#: Name of a library as the linker takes it after -l.
LIBRARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+.-]{0,99}")

_ARCH = r"(sm|compute)_\d{2,3}[af]?"
_CUDA_HOME = r"/usr/local/cuda(-\d+(\.\d+)?)?"
_FOLDER = r"(\./)*(\.|[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*)/?"
_INCLUDE = rf"-(I|isystem)({_FOLDER}|{_CUDA_HOME}(/targets/[\w-]+)?/include/?)"
_MACRO = r"-(D[A-Za-z_]\w*(=[\w.+\-*/:,]*)?|U[A-Za-z_]\w*)"
_LIBRARY = rf"-l{LIBRARY.pattern}"
_WARNING = r"-w|-W[a-z0-9+-]*(=[a-z0-9_+-]+)?"
_BOOLEAN = r"(=(true|false))?"

#: What g++ may be told, when it compiles and when it links.
_HOST = (
    *(r"-O([0-3sgz]|fast)?", r"-g[0-3]?", r"-m64", r"-pthread", r"-pipe", _WARNING),
    r"-f(?!plugin|dump|profile|auto-profile|module|use-ld|lto|opt-info|save-|stack-usage|callgraph|test-coverage"
    r"|compare-debug|deps|diagnostics-|self-test|ada|offload|pch|coverage)[A-Za-z0-9-]+(=[a-z0-9_+.-]+)?",
    r"-m(arch|tune)=[a-z0-9_.+-]+|-mprefer-vector-width=(none|\d+)|-mfpmath=[a-z0-9+]+",
    r"-m(no-)?(avx[a-z0-9.-]*|sse[a-z0-9.]*|fma4?|f16c|bmi2?|popcnt|lzcnt|amx[a-z0-9-]*)",
)


@dataclass(frozen=True, slots=True)
class _Grammar:
    """What one program may be told."""

    #: Patterns of whole flags.
    allowed: Sequence[str]
    #: Options whose value may be the next flag, and what joins both into one.
    separate: Mapping[str, str] = field(default_factory=dict)
    #: Options that pass a list on to another program, and the grammar for it.
    passed_on: Mapping[str, str] = field(default_factory=dict)

    def accepts(self, flag: str) -> bool:
        """Return whether `flag`, with its value, matches a pattern."""
        return any(re.fullmatch(pattern, flag) for pattern in self.allowed)


_BESIDE = dict.fromkeys(("-I", "-isystem", "-D", "-U", "-l"), "")
_GRAMMARS = {
    "cpp": _Grammar((*_HOST, r"-std=(c|gnu)\+\+\w{2}", _MACRO, _INCLUDE, _LIBRARY), _BESIDE),
    "link": _Grammar(
        (
            *(*_HOST, _LIBRARY, r"-s", r"-shared", rf"-L{_CUDA_HOME}/[\w/-]*"),
            rf"-Wl,(--(no-)?as-needed|--no-undefined|--gc-sections|-O\d|-s|-z,(now|relro|defs)"
            rf"|-rpath[,=]{_CUDA_HOME}/[\w/-]*)",
        ),
        {"-l": "", "-L": ""},
    ),
    "cuda": _Grammar(
        (
            *(r"-O[0-4]?", r"--?optimize=[0-4]", r"-Ofc=\w+|--Ofast-compile=\w+", r"--?std=c\+\+\d\d"),
            *(_MACRO, r"--(define|undefine)-macro=[A-Za-z_]\w*(=[\w.+\-*/:,]*)?", _LIBRARY, _WARNING),
            *(_INCLUDE, rf"--include-path={_FOLDER}", r"--disable-warnings", r"--Werror=[a-z,-]+"),
            *(r"-g|-G|--debug|--device-debug", r"-lineinfo|--generate-line-info", r"-m64|--machine=64"),
            *(r"--?use_fast_math", rf"--?(fmad|ftz|prec-div|prec-sqrt){_BOOLEAN}", r"--?maxrregcount=\d{1,3}"),
            *(r"--?expt-(relaxed-constexpr|extended-lambda)", r"--?extended-lambda", r"--?restrict"),
            *(rf"(-rdc|--relocatable-device-code){_BOOLEAN}", rf"--?extra-device-vectorization{_BOOLEAN}"),
            *(r"--?default-stream=(legacy|null|per-thread)", r"-res-usage|--resource-usage|-v|--verbose"),
            *(r"-(arch|code)=" + rf"(native|all|all-major|{_ARCH}(,{_ARCH})*)", r"-err-no|--display-error-number"),
            rf"--gpu-(architecture|code)=(native|all|all-major|{_ARCH}(,{_ARCH})*)",
            rf"(-gencode|--generate-code)=arch=compute_\d{{2,3}}[af]?,code=({_ARCH}|\[{_ARCH}(,{_ARCH})*\])",
            r"--?diag-(suppress|error|warn)=[\w,]+|-allow-unsupported-compiler|--allow-unsupported-compiler",
            r"(-t|--threads|--?split-compile)=?\d{1,3}",
        ),
        {
            **_BESIDE,
            **dict.fromkeys(
                (
                    *("-Xptxas", "--ptxas-options", "-Xcompiler", "--compiler-options", "-Xcudafe", "-Xfatbin"),
                    *("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"),
                    *("-std", "--std", "-maxrregcount", "--maxrregcount", "-t", "--threads"),
                    *("-split-compile", "--split-compile", "-diag-suppress", "--diag-suppress"),
                    *("-diag-error", "--diag-error", "-diag-warn", "--diag-warn", "--optimize"),
                    *("--define-macro", "--undefine-macro", "--include-path"),
                    *("-default-stream", "--default-stream", "--machine"),
                ),
                "=",
            ),
        },
        {
            **dict.fromkeys(("-Xptxas", "--ptxas-options"), "ptxas"),
            **dict.fromkeys(("-Xcompiler", "--compiler-options"), "cpp"),
            "-Xcudafe": "cudafe",
            "-Xfatbin": "fatbin",
        },
    ),
    "ptxas": _Grammar(
        (
            *(r"-v|--verbose", r"-O[0-4]|--opt-level=[0-4]", r"-w|-Werror", r"-g|-lineinfo|--generate-line-info"),
            *(r"(-dlcm|--def-load-cache)=c[agsv]", r"(-dscm|--def-store-cache)=(wb|cg|cs|wt)"),
            r"--warn-on-(spills|local-memory-usage|double-precision-use)|-warn-(spills|lmem-usage|double-usage)",
            rf"--?allow-expensive-optimizations{_BOOLEAN}|--?fmad{_BOOLEAN}|--suppress-stack-size-warning",
            r"--?maxrregcount=\d{1,3}|--?register-usage-level=\d{1,2}|--disable-optimizer-constants",
        )
    ),
    "cudafe": _Grammar((r"--(diag_suppress|diag_error|diag_warning)=\w+|--display_error_number",)),
    "fatbin": _Grammar((r"--?compress-all",)),
}

#: Why flags of these forms are refused, and what to do instead; the first that matches counts.
_REASONS = (
    (r"@.*", "reads flags from a file; give the flags themselves"),
    (r"[^-].*", "is not a flag; give sources and headers as files, and libraries by name"),
    (r"-f?plugin.*|-fplugin-arg.*|-load.*", "loads a plug-in into the compiler; leave it out"),
    (
        r"-B.*|--?ccbin.*|--compiler-bindir.*|-wrapper.*|--?specs.*|-fuse-ld.*|-fmodule.*|-foffload.*|-x.*|--sysroot.*",
        "chooses another program or its settings; leave it out, because the evaluator chooses the compilers",
    ),
    (
        r"-o.*|-c|-E|-S|-M.*|-ptx|-cubin|-fatbin|-dc|-dw|-fdump.*|-fprofile.*|--?save-temps.*|--?keep.*|-f(save|stack-usage|"
        r"callgraph|test-coverage|opt-info|diagnostics|deps).*",
        "decides what a compiler writes; leave it out",
    ),
    (
        r"-(I|isystem).*|--include-path.*",
        "names a folder outside the candidate; give a relative one, such as -Iinclude",
    ),
    (r"-L.*|-Wl,-rpath.*", "names a folder of libraries; give libraries by name, such as cublas"),
    (r"-l.*", "is not the name of a library; give one such as -lcublas"),
    (
        r"-[DU].*|--(un)?define-macro.*",
        "is not a plain definition (letters, digits and _.+-*/:,); write it in a header",
    ),
    (r"-flto.*|--?dlto.*", "moves the compilation into the linking, which is not supported; leave it out"),
)
_UNKNOWN = "is not on the list of allowed flags; leave it out"


def refused(flags: Sequence[str], compiler: Compiler) -> list[tuple[str, str]]:
    """Return the flags that are not allowed, each with the reason and what to do about it.

    A flag and its value may be two items ("-Xptxas", "-v"); both are then one flag in the answer ("-Xptxas -v").

    Args:
        flags: the flags, in order, one item each.
        compiler: what gets them: "cuda" for nvcc, "cpp" for g++ as the compiler, "link" for g++ as the linker.
    """
    return list(_refused(flags, compiler))


def _refused(flags: Sequence[str], program: str) -> Iterator[tuple[str, str]]:
    grammar = _GRAMMARS[program]
    rest = iter(flags)
    for flag in rest:
        if reason := _unusable(flag):
            yield flag[:MAX_FLAG_CHARS], reason
            continue
        shown = whole = flag
        if (joint := grammar.separate.get(flag)) is not None:
            value = next(rest, None)
            if value is None:
                yield flag, "needs a value; give it as the next flag"
                return
            shown, whole = f"{flag} {value}"[:MAX_FLAG_CHARS], f"{flag}{joint}{value}"
            if reason := _unusable(value):
                yield shown, reason
                continue
        option, given, values = whole.partition("=")
        if given and option in grammar.passed_on:
            for inner, reason in _refused(values.split(","), grammar.passed_on[option]):
                yield shown, f"{inner or 'an empty flag'} {reason}"
        elif not grammar.accepts(whole):
            yield shown, _reason(whole)


def _unusable(flag: str) -> str:
    """Return why no compiler may get `flag`, whatever it means; "" if nothing is wrong."""
    if not flag:
        return "is empty; leave it out"
    if len(flag) > MAX_FLAG_CHARS:
        return f"has {len(flag)} characters; at most {MAX_FLAG_CHARS} are allowed"
    if any(character.isspace() for character in flag):
        return "has a space; give each flag as an item of its own"
    return ""


def _reason(flag: str) -> str:
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, flag)), _UNKNOWN)
