"""The methods of at::Tensor that a source uses: torch's own class, without the other six hundred.

`ATen/core/TensorBody.h` defines every method inline, by calling an operator that one of 420 files declares. Its text is
generated and regular. What is kept is unchanged: a method is left out if its name stands neither in the source nor in
one of the headers that call methods. Leaving out inline functions changes no layout and no other function. If a source
needs more in spite of that, the compiler fails, and all headers are used.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from pathlib import Path

_DEFINITION = re.compile(
    r"^// aten::(?P<operator>\w+)[^\n]*\ninline [^\n]*? Tensor::(?P<name>\w+)\([^\n]*\) const \{\n.*?^\}\n", re.M | re.S
)
_DECLARATION = re.compile(r"^  [\w:<>,& ]+[ &](?P<name>\w+)\([^\n;]*\) const;\n", re.M)
_ALL_OPERATORS = "#include <ATen/MethodOperators.h>\n"
_WORD = re.compile(r"\w+")
#: Fewer definitions mean that this version of torch writes the file in another way.
_LEAST = 500


def words(text: str) -> set[str]:
    """Return all identifiers in a text."""
    return set(_WORD.findall(text))


@functools.cache
def _parsed(body: Path) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return the header without methods' definitions, and these with their names; None if it has another form."""
    text = body.read_text()
    found = tuple((match["name"], match[0]) for match in _DEFINITION.finditer(text))
    if len(found) < _LEAST or text.count(_ALL_OPERATORS) != 1:
        return None
    return _DEFINITION.sub("", text), found


def selected(include: Path, wanted: Collection[str]) -> str | None:
    """Return the content of TensorBody.h with only some methods, or None if it cannot be taken apart.

    Args:
        include: torch's include directory.
        wanted: Identifiers that may be names of methods. Those that the header itself uses are added.
    """
    parsed = _parsed(include / "ATen/core/TensorBody.h")
    if parsed is None:
        return None
    rest, definitions = parsed
    methods = {name for name, _ in definitions}
    kept = methods & (set(wanted) | words(_DECLARATION.sub("", rest)))
    chosen = [definition for name, definition in definitions if name in kept]
    headers: set[str] = set()
    for definition in chosen:
        match = _DEFINITION.match(definition)
        assert match is not None
        header = _header(include / "ATen/ops", match["operator"])
        if header is None:
            return None
        headers.add(f"#include <ATen/ops/{header}>\n")
    rest = _DECLARATION.sub(lambda match: "" if match["name"] in methods - kept else match[0], rest)
    rest = rest.replace(_ALL_OPERATORS, "#include <ATen/core/ATen_fwd.h>\n" + "".join(sorted(headers)))
    at = rest.rindex("namespace at {")
    return rest[:at] + "namespace at {\n" + "".join(chosen) + "} // namespace at\n\n" + rest[at:]


def _header(operators: Path, operator: str) -> str | None:
    """Return the file that declares an operator; variants that work in place are in the file of the others."""
    for name in (operator, operator.rstrip("_"), operator.strip("_")):
        if (operators / f"{name}_ops.h").is_file():
            return f"{name}_ops.h"
    return None
