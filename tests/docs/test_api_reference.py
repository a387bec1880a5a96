"""docs/api.md is what docs/api_reference.py writes, and has every service, message, field and value of the contract."""

from __future__ import annotations

import re
import subprocess
import sys

from google.protobuf.descriptor import Descriptor, EnumDescriptor

from kerneldyno.v1 import (
    evaluation_pb2,
    evaluator_service_pb2,
    fleet_service_pb2,
    reward_service_pb2,
    scheduler_service_pb2,
)
from tests.docs.docs_pages import ROOT

PAGE = (ROOT / "docs/api.md").read_text()
FILES = (evaluation_pb2, evaluator_service_pb2, fleet_service_pb2, reward_service_pb2, scheduler_service_pb2)


def test_the_page_is_the_protos() -> None:
    source = "import api_reference; print(api_reference.page(), end='')"
    written = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT / "docs", capture_output=True, text=True, check=True
    )
    assert written.stdout == PAGE, "run: make docs"


def test_everything_has_its_heading_or_its_row() -> None:
    headings = set(re.findall(r"^####? (.+)$", PAGE, re.MULTILINE))
    rows = set(re.findall(r'^\| <a id="([\w.]+)"></a>`\w+` \| ', PAGE, re.MULTILINE))
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            assert {service.name, *(f"{service.name}.{method.name}" for method in service.methods)} <= headings
        for message in file.DESCRIPTOR.message_types_by_name.values():
            _look_for_message(message, headings, rows)
        for enum in file.DESCRIPTOR.enum_types_by_name.values():
            _look_for_enum(enum, headings, rows)


def _look_for_message(message: Descriptor, headings: set[str], rows: set[str]) -> None:
    name = message.full_name.removeprefix("kerneldyno.v1.")
    assert name in headings
    assert {f"{name}.{field.name}".lower() for field in message.fields} <= rows
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            _look_for_message(nested, headings, rows)
    for enum in message.enum_types:
        _look_for_enum(enum, headings, rows)


def _look_for_enum(enum: EnumDescriptor, headings: set[str], rows: set[str]) -> None:
    name = enum.full_name.removeprefix("kerneldyno.v1.")
    assert name in headings
    assert {f"{name}.{value.name}".lower() for value in enum.values} <= rows
