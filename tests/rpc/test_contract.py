"""The contract is lint-free, and the committed stubs are those of the committed protos."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2

ROOT = Path(__file__).parents[2]
BUF = str(Path(sys.executable).with_name("buf"))
FILES = sorted(str(path.relative_to(ROOT / "protos")) for path in (ROOT / "protos").rglob("*.proto"))


def buf(*arguments: str) -> None:
    done = subprocess.run([BUF, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_protos_are_lint_free_and_formatted() -> None:
    buf("lint")
    buf("format", "--diff", "--exit-code")


def test_the_stubs_are_those_of_the_protos(tmp_path: Path) -> None:
    image = tmp_path / "image.binpb"
    buf("build", "--as-file-descriptor-set", "--exclude-source-info", "-o", str(image))
    built = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()).file}
    assert FILES
    for name in FILES:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        committed = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(committed)
        for message in built[name].message_type:
            _drop_json_names(message)
        for message in committed.message_type:
            _drop_json_names(message)
        assert committed == built[name], f"{name}: run `make proto`"


def test_every_service_has_its_grpc_stub() -> None:
    for name in FILES:
        module = name.removesuffix(".proto").replace("/", ".")
        services = importlib.import_module(module + "_pb2").DESCRIPTOR.services_by_name.values()
        stubs = importlib.import_module(module + "_pb2_grpc")
        for service in services:
            methods = {method.name for method in service.methods}
            assert methods <= set(dir(getattr(stubs, f"{service.name}Servicer"))), f"{name}: run `make proto`"


def _drop_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    """Remove JSON names: some compilers write those that follow from the field names, others do not."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _drop_json_names(nested)
