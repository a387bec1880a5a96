"""Write docs/api.md, the reference of `kerneldyno.v1`, from the comments of the protos: `python docs/api_reference.py`.

buf compiles the protos to descriptors that keep their comments. Each service, message and enum becomes a heading, and each
field and value becomes a row with an anchor (`#evalrequest.tolerance`). `make docs` runs this program, and a test fails when
the page is stale.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/api.md"
PACKAGE = "kerneldyno.v1"
#: Protos in the order of the page's sections.
FILES = ("scheduler_service", "reward_service", "evaluation", "fleet_service", "evaluator_service")
HEAD = f"""# API reference

<!-- Written by docs/api_reference.py from protos/; change the comments there and run `make docs`. -->

This page describes the services of `{PACKAGE}`; its text comes from the comments of [the
protos](../protos/kerneldyno/v1). JSON uses the field names as they are here. An absent field has the default that its
row names. These pages explain how to use the calls: [evaluating.md](evaluating.md), [rewards.md](rewards.md),
[operating.md](operating.md).
"""

#: Field numbers of descriptor.proto, which make up the paths of comments.
_FILE_MESSAGE, _FILE_ENUM, _FILE_SERVICE = 4, 5, 6
_MESSAGE_FIELD, _MESSAGE_NESTED, _MESSAGE_ENUM, _MESSAGE_ONEOF = 2, 3, 4, 8
_SERVICE_METHOD, _ENUM_VALUE = 2, 2

Path_ = tuple[int, ...]


def page() -> str:
    """Return the text of the page that the protos ask for."""
    files = {file.name: file for file in _descriptors().file}
    pages = [_File(files[f"kerneldyno/v1/{name}.proto"]) for name in FILES]
    known = {name for file in pages for name in file.names()}
    contents = "".join(file.contents() for file in pages)
    return HEAD + "\n" + contents + "".join("\n" + file.markdown(known) for file in pages)


def main() -> None:
    """Write the page to docs/api.md."""
    PAGE.write_text(page())


def _descriptors() -> FileDescriptorSet:
    buf = Path(sys.executable).with_name("buf")
    done = subprocess.run(
        [str(buf), "build", "--as-file-descriptor-set", "-o", "-#format=binpb"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return FileDescriptorSet.FromString(done.stdout)


class _File:
    """One proto and its comments by path."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments = {
            tuple(location.path): location.leading_comments for location in file.source_code_info.location
        }
        self.title = file.name.rpartition("/")[2]

    def services(self) -> Iterator[str]:
        """Return the names of the services."""
        return (service.name for service in self._file.service)

    def types(self) -> Iterator[str]:
        """Return the names of messages and enums; a nested name has a dot."""
        for message, _, name in self._messages(self._file.message_type, (_FILE_MESSAGE,), ""):
            yield name
            yield from (f"{name}.{enum.name}" for enum in message.enum_type)
        yield from (enum.name for enum in self._file.enum_type)

    def names(self) -> Iterator[str]:
        """Return the names of everything that has a heading."""
        yield from self.services()
        yield from self.types()

    def contents(self) -> str:
        """Return this proto's item of the list at the top of the page."""
        names = [name for name in self.names() if "." not in name]
        return f"- [{self.title}](#{_slug(self.title)}): {', '.join(map(_link, names))}\n"

    def markdown(self, known: set[str]) -> str:
        """Return the sections of this proto; types in `known` become links."""
        text = f"## {self.title}\n"
        for index, service in enumerate(self._file.service):
            text += self._service(service, (_FILE_SERVICE, index))
        for message, path, name in self._messages(self._file.message_type, (_FILE_MESSAGE,), ""):
            text += self._message(message, path, name, known)
            for index, enum in enumerate(message.enum_type):
                text += self._enum(enum, (*path, _MESSAGE_ENUM, index), f"{name}.{enum.name}")
        for index, enum in enumerate(self._file.enum_type):
            text += self._enum(enum, (_FILE_ENUM, index), enum.name)
        return text

    def _messages(
        self, messages: Sequence[DescriptorProto], path: Path_, within: str
    ) -> Iterator[tuple[DescriptorProto, Path_, str]]:
        for index, message in enumerate(messages):
            if message.options.map_entry:
                continue
            name = f"{within}{message.name}"
            yield message, (*path, index), name
            yield from self._messages(message.nested_type, (*path, index, _MESSAGE_NESTED), f"{name}.")

    def _service(self, service: ServiceDescriptorProto, path: Path_) -> str:
        text = f"\n### {service.name}\n\n{self._prose(path)}"
        for index, method in enumerate(service.method):
            comment = self._prose((*path, _SERVICE_METHOD, index))
            text += f"\n#### {service.name}.{method.name}\n\n{_signature(method)}\n\n{comment}"
        return text

    def _message(self, message: DescriptorProto, path: Path_, name: str, known: set[str]) -> str:
        text = f"\n### {name}\n\n{self._prose(path)}"
        if not message.field:
            return text
        text += "\n| field | type | meaning |\n| --- | --- | --- |\n"
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        for index, field in enumerate(message.field):
            meaning = self._cell((*path, _MESSAGE_FIELD, index))
            if field.HasField("oneof_index") and not field.proto3_optional:
                meaning = f"One of `{message.oneof_decl[field.oneof_index].name}`. {meaning}"
            kind = _type(field, maps, known)
            text += f"| {_anchored(name, field.name)} | {kind} | {meaning} |\n"
        return text

    def _enum(self, enum: EnumDescriptorProto, path: Path_, name: str) -> str:
        text = f"\n### {name}\n\n{self._prose(path)}\n| value | number | meaning |\n| --- | --- | --- |\n"
        for index, value in enumerate(enum.value):
            meaning = self._cell((*path, _ENUM_VALUE, index))
            text += f"| {_anchored(name, value.name)} | {value.number} | {meaning} |\n"
        return text

    def _prose(self, path: Path_) -> str:
        """Return a comment as paragraphs; "Errors:" and the indented lines below it become a list."""
        lines: list[str] = []
        for line in self._comments[path].splitlines():
            line = _escaped(line.removeprefix(" ").rstrip())
            if re.match(r"  [A-Z_]+: ", line):
                line = re.sub(r"^  ([A-Z_]+):", r"- `\1`:", line)
            elif line == "Errors:":
                line = "\nErrors:\n"
            lines.append(line)
        return "\n".join(lines) + "\n"

    def _cell(self, path: Path_) -> str:
        return _escaped(" ".join(self._comments[path].split())).replace("|", "\\|")


def _signature(method: MethodDescriptorProto) -> str:
    asked = "stream of " * method.client_streaming + _link(_short(method.input_type))
    answered = "stream of " * method.server_streaming + _link(_short(method.output_type))
    return f"{asked} → {answered}"


def _type(field: FieldDescriptorProto, maps: dict[str, DescriptorProto], known: set[str]) -> str:
    nested = field.type_name.rpartition(".")[2]
    if nested in maps:
        key, value = maps[nested].field
        return f"map of {_type(key, {}, known)} to {_type(value, {}, known)}"
    short = _short(field.type_name)
    if not field.type_name:
        name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    else:
        name = _link(short) if short in known else short
    many = field.label == FieldDescriptorProto.LABEL_REPEATED
    return "repeated " * many + "optional " * field.proto3_optional + name


def _anchored(name: str, member: str) -> str:
    return f'<a id="{name.lower()}.{member.lower()}"></a>`{member}`'


def _short(type_name: str) -> str:
    return type_name.removeprefix(f".{PACKAGE}.").removeprefix(".")


def _link(name: str) -> str:
    return f"[{name}](#{_slug(name)})"


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _escaped(text: str) -> str:
    """Escape a plain text for Markdown: text in backticks stays, and nothing outside of backticks is markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*\[])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    main()
