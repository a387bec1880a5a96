"""Tests of the checks of `kerneldyno doctor` with real faults: full disks, expired certificates, taken ports."""

from __future__ import annotations

import http.server
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.doctor import certificates, machine, ports, sandbox, software
from kerneldyno.doctor.checks import Check, Examination, State, conduct
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.v1.fleet_service_pb2 import SandboxLayer
from tests.rpc.certificates import Authority
from tests.waiting import free_port


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


class TestConduct:
    def test_what_hangs_is_left_behind_and_what_raises_is_a_note(self) -> None:
        hung = threading.Event()

        def broken() -> Iterator[Check]:
            yield Check("lost", State.OK, "")
            raise ValueError("a bug")

        started = time.monotonic()
        found = list(
            conduct(
                [
                    Examination("hanging", lambda: [Check("never", State.OK, str(hung.wait(600)))], seconds=0.2),
                    Examination("broken", broken),
                    Examination("fine", lambda: [Check("fine", State.OK, "here")]),
                ]
            )
        )
        assert time.monotonic() - started < 30
        assert [(one.name, one.state) for one in found] == [("hanging", "failed"), ("broken", "note"), ("fine", "ok")]
        assert "no answer within 0.2 s" in found[0].detail
        assert "ValueError: a bug" in found[1].detail


class TestJournal:
    def test_a_full_disk(self, tmp_path: Path) -> None:
        with full_disk(tmp_path) as (folder, environment):
            ran = subprocess.run(
                [sys.executable, "-c", _LOOK_AT_JOURNAL, f"sqlite:{folder}/j.sqlite", *environment],
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert ran.stdout.startswith("failed "), ran
        assert "make room" in ran.stdout

    def test_a_folder_that_is_to_be_made(self, tmp_path: Path) -> None:
        (check,) = machine.journal(f"sqlite:{tmp_path}/state/kerneldyno/j.sqlite")
        assert check.state is not State.FAILED
        assert f"{tmp_path}/state/kerneldyno (will be created in {tmp_path})" in check.detail
        assert list(tmp_path.iterdir()) == []

    def test_memory_is_a_note(self) -> None:
        (check,) = machine.journal("memory")
        assert (check.state, check.remedy) == (State.NOTE, "--store sqlite:PATH, on a local disk")

    def test_a_folder_that_may_not_be_written(self) -> None:
        (check,) = machine.journal("sqlite:/proc/self/j.sqlite")
        assert check.state is State.FAILED
        assert "cannot be written" in check.detail


_LOOK_AT_JOURNAL = """
import resource, sys
from kerneldyno.doctor import machine
if "limit" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
for check in machine.journal(sys.argv[1]):
    sys.stdout.write(f"{check.state} {check.detail} -> {check.remedy}")
"""


@contextmanager
def full_disk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder on a full file system. Where none can be mounted, also yield "limit": a ban on writing."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        yield folder, ["limit"]
        return
    try:
        with suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"\0" * 4096)
        yield folder, []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class TestMachine:
    def test_every_check_of_this_machine_says_something(self) -> None:
        for look in (machine.system, machine.open_files, machine.shared_memory, machine.scratch, machine.clocks):
            assert [check for check in look() if check.detail], look

    def test_few_open_files(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        code = (
            "import resource, sys; from kerneldyno.doctor import machine\n"
            f"resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), {hard}))\n"
            "print(*(check.state for check in machine.open_files()))"
        )
        states = [
            subprocess.run([sys.executable, "-c", code, limit], capture_output=True, text=True, timeout=60).stdout
            for limit in ("256", "1024")
        ]
        assert states == ["failed\n", "note\n"]
        assert soft > 0

    def test_no_shared_memory(self, tmp_path: Path) -> None:
        (check,) = machine.shared_memory(str(tmp_path / "shm"))
        assert (check.state, check.detail) == (State.NOTE, "not there")

    def test_no_scratch(self, tmp_path: Path) -> None:
        code = (
            "import sys, tempfile; from kerneldyno.doctor import machine\n"
            "tempfile.tempdir = sys.argv[1]\n"
            "print(*(check.state for check in machine.scratch()))"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "gone")]
        assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "failed\n"


class TestSoftware:
    @pytest.fixture
    def install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """A function that puts a fake distribution before the real ones: metadata, and the source of a module."""

        def put(name: str, version: str, *, needs: str = "", module: str = "") -> None:
            info = tmp_path / f"{name}-{version}.dist-info"
            info.mkdir()
            required = f"Requires-Dist: {needs}\n" if needs else ""
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}\n")
            (tmp_path / f"{name}.py").write_text(module)

        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return put

    def test_versions_that_do_not_fit(self, install) -> None:  # type: ignore[no-untyped-def]
        install("torch", "2.9.1+cu128", needs='triton==3.5.1; platform_system == "Linux"')
        install("triton", "3.6.0")
        (check,) = software.torch()
        assert (check.state, check.remedy) == (State.FAILED, "pip install triton==3.5.1")

    def test_versions_that_are_too_old(self, install) -> None:  # type: ignore[no-untyped-def]
        install("torch", "2.1.0")
        install("triton", "3.6.0")
        (check,) = software.torch()
        assert check.state is State.FAILED
        assert check.remedy.startswith("pip install 'torch>=")

    def test_one_that_cannot_be_imported(self, install) -> None:  # type: ignore[no-untyped-def]
        install("torch", "2.9.1", module="raise ImportError('libcudart.so.12: cannot open shared object file')")
        install("triton", "3.6.0")
        (check,) = software.torch()
        assert check.state is State.FAILED
        assert "libcudart.so.12" in check.detail

    @pytest.mark.parametrize(
        ("said", "driver", "state", "words"),
        [
            ({"cuda": None}, None, State.OK, "without CUDA"),
            ({"cuda": None}, (13, 0), State.FAILED, "GPUs cannot be used"),
            ({"cuda": "13.0"}, (12, 8), State.FAILED, "the driver serves CUDA 12.8 at most"),
            ({"cuda": "12.8"}, (13, 0), State.FAILED, "it finds no GPU"),
            ({"cuda": "12.8", "available": True, "devices": [[9, 0]]}, (13, 0), State.OK, "1 GPU(s) in reach"),
            ({"cuda": "12.6", "available": True, "devices": [[10, 0]]}, (12, 8), State.FAILED, "capability 10.0"),
        ],
    )
    def test_torch_and_driver(
        self, said: dict[str, object], driver: tuple[int, int] | None, state: State, words: str
    ) -> None:
        found = software.Driver("570.1", driver, ("NVIDIA H200",)) if driver else None
        arches = ["sm_80", "sm_90", "sm_90a"]
        check = software._fits("torch", "t", {"available": False, "devices": [], "arches": arches, **said}, found)
        assert (check.state, words in check.detail) == (state, True), check
        assert bool(check.remedy) == (state is State.FAILED)

    @pytest.mark.parametrize(
        ("version", "parts"), [("2.9.1+cu128", (2, 9, 1)), ("3.4", (3, 4)), ("2.10.0a0+git1", (2, 10, 0)), ("x", ())]
    )
    def test_versions_are_compared_by_number(self, version: str, parts: tuple[int, ...]) -> None:
        assert software._parts(version) == parts


class TestCertificates:
    def test_dates_are_those_that_openssl_reads(self, authority: Authority) -> None:
        text = subprocess.run(
            ["openssl", "x509", "-noout", "-startdate", "-enddate", "-in", authority.cert],
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        begin, end = (line.split("=")[1] for line in text.splitlines())
        found = certificates.validity(ssl.PEM_cert_to_DER_cert(Path(authority.cert).read_text()))
        for read, written in ((found.begin, begin), (found.end, end)):
            assert read == datetime.strptime(written, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)

    @given(st.binary(max_size=200))
    def test_what_is_no_certificate_is_a_value_error(self, der: bytes) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - any
            certificates.validity(der)

    def test_one_that_has_expired(self, authority: Authority) -> None:
        pair = authority.issue("expired", days=-1)
        given_ = Credentials(tls_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)
        authority_, own = certificates.of_files(given_, datetime.now(UTC))
        assert (authority_.state, authority_.name) == (State.NOTE, "CA of the scheduler")  # valid for two more days
        assert (own.state, own.name) == (State.FAILED, "own certificate")
        assert "expired at 20" in own.detail
        assert "docs/security.md" in own.remedy

    def test_one_of_the_future(self, authority: Authority) -> None:
        (check,) = certificates.of_files(Credentials(tls_ca=authority.cert), datetime.now(UTC) - timedelta(days=400))
        assert check.state is State.FAILED
        assert "not valid before" in check.detail

    def test_what_a_server_shows(self, authority: Authority) -> None:
        pair = authority.issue("server-expired", days=-1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve() -> None:
                with suppress(OSError), server.accept()[0] as one, context.wrap_socket(one, server_side=True) as shown:
                    shown.recv(1)

            serving = threading.Thread(target=serve)
            serving.start()
            address = f"127.0.0.1:{server.getsockname()[1]}"
            (check,) = certificates.of_scheduler(address, Credentials(tls_ca=authority.cert), datetime.now(UTC))
            serving.join(60)
        assert (check.name, check.state) == ("scheduler's certificate", State.FAILED)
        assert "expired" in check.detail
        assert (
            list(certificates.of_scheduler("127.0.0.1:1", Credentials(tls_ca=authority.cert), datetime.now(UTC))) == []
        )


class TestPorts:
    def test_who_holds_a_port(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert ports.holder(server.getsockname()[1]).endswith(f"(pid {os.getpid()})")
        assert ports.holder(free_port()) == ""

    def test_taken_by_another_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        handler = http.server.SimpleHTTPRequestHandler
        handler.log_message = lambda *_: None  # type: ignore[method-assign,assignment]
        with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
            port = server.server_port
            threading.Thread(target=server.serve_forever, daemon=True).start()
            free = free_port()
            uses = {port: ("scheduler's metrics", "--metrics"), free: ("scheduler", "--listen")}
            monkeypatch.setattr(ports, "DEFAULTS", uses)
            monkeypatch.setattr(ports, "_METRICS", (port,))
            taken, others = ports.default_ports()
            server.shutdown()
        assert (taken.name, taken.state) == (f"port {port}", State.NOTE)
        assert f"(pid {os.getpid()})" in taken.detail
        assert "another --metrics" in taken.remedy
        assert others.detail == f"free: {free} (scheduler)"


class TestSandbox:
    def test_here(self) -> None:
        before = os.readlink("/proc/self/ns/mnt")
        (check,) = sandbox.here()
        assert check.detail.startswith("to be had: ")
        assert (check.state is State.OK) == ("require will serve" in check.detail)
        assert os.readlink("/proc/self/ns/mnt") == before

    @pytest.mark.parametrize(
        ("lost", "state"),
        [
            ((), State.OK),
            (("cgroup", "one_gpu"), State.OK),
            (("landlock", "seccomp", "kernel"), State.OK),
            (("user_namespace", "mount_namespace", "process_list"), State.OK),
            (("user_namespace", "landlock"), State.NOTE),
            (("network",), State.NOTE),
        ],
    )
    def test_of_a_node(self, lost: tuple[str, ...], state: State) -> None:
        names = {"user_namespace", "mount_namespace", "landlock", "seccomp", "kernel", "network", "cgroup", "one_gpu"}
        layers = [SandboxLayer(name=name, active=name not in lost) for name in sorted(names | set(lost))]
        check = sandbox.of_node("n1", layers)
        assert (check.name, check.state) == ("sandbox of n1", state)
        assert all(name in check.detail for name in lost)
