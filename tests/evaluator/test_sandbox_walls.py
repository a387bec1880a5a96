"""Each sandbox layer alone: candidates in private namespaces test filters; other tests use fake or real systems."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kerneldyno.evaluator.runner.warden import _group_bytes, _Warden
from kerneldyno.evaluator.walls import Unavailable, cgroup, gpu, seccomp
from kerneldyno.evaluator.walls.limits import scratch_is_full
from kerneldyno.evaluator.walls.root import SCRATCH_FILES
from tests.evaluator.judge_harness import Judge, printed

pytestmark = pytest.mark.alone

# Filters, tested by candidates


def test_system_calls_are_refused(judge: Judge) -> None:
    code = """
import ctypes, errno, fcntl, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
def tell(name, result):
    print(name, errno.errorcode.get(ctypes.get_errno(), "?") if result == -1 else f"succeeded ({result})")
def attempt(name, action):
    try:
        action()
        print(name, "succeeded")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
tell("traceme:", libc.ptrace(0, 0, 0, 0))
tell("new_user:", libc.unshare(0x10000000))
tell("filter:", libc.prctl(22, 2, 0))
tell("personality:", libc.personality(0x0040000))
print("personality now:", libc.personality(0xffffffff))
for family in ("AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH", "AF_KEY"):
    attempt(family + ":", lambda: socket.socket(getattr(socket, family, 15), socket.SOCK_RAW))
attempt("tiocsti:", lambda: fcntl.ioctl(0, 0x5412, b"x"))
attempt("prlimit:", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1)))
attempt("tcp:", lambda: socket.socket().connect(("127.0.0.1", 1)))
attempt("mknod:", lambda: os.mknod("node", 0o020600, 0))
attempt("to_init:", lambda: os.kill(1, 9))
"""
    logs = printed(judge, code)
    for name in ("traceme", "new_user", "filter", "personality", "tiocsti", "prlimit"):
        assert f"{name}: EPERM" in logs, logs
    assert "personality now: 0" in logs
    for family in ("AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH", "AF_KEY"):
        assert f"{family}: EAFNOSUPPORT" in logs, logs
    assert "tcp: EACCES" in logs
    assert "mknod: EACCES" in logs
    assert "succeeded" not in logs


def test_what_honest_programs_do_still_works(judge: Judge) -> None:
    code = """
import ctypes, mmap, multiprocessing, os, socket, subprocess, sys, tempfile, threading, torch
open("main.c", "w").write("int answer(void) { return 42; }")
subprocess.run(["cc", "-shared", "-fPIC", "-o", "libanswer.so", "main.c"], check=True)
print("compiled:", ctypes.CDLL("./libanswer.so").answer())
print("python:", subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout.strip())
thread = threading.Thread(target=lambda: print("thread: ran"))
thread.start(); thread.join()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print("pool:", pool.map(abs, [-1, -2]))
ours, theirs = socket.socketpair()
descriptor = os.memfd_create("shared")
os.ftruncate(descriptor, 4096)
print("memfd:", mmap.mmap(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR), 4096)[0])
print("shared:", torch.ones(3).share_memory_().is_shared())
os.makedirs("a/b"); open("a/x", "w").write("x"); os.rename("a/x", "a/b/x"); print("moved:", os.path.exists("a/b/x"))
tempfile.NamedTemporaryFile().close()
open("/dev/null", "w").write("x"); print("random:", len(open("/dev/urandom", "rb").read(8)))
"""
    logs = printed(judge, code)
    for line in (
        "compiled: 42",
        "python: 42",
        "thread: ran",
        "pool: [1, 2]",
        "memfd: 0",
        "shared: True",
        "moved: True",
    ):
        assert line in logs, logs
    assert "random: 8" in logs


def test_scratch_and_shared_memory_have_one_quota(judge: Judge) -> None:
    code = """
import errno, os, sys
block, stored, full = bytes(1 << 26), 0, None
for number in range(40):
    place = "/dev/shm" if number % 2 else "."
    try:
        with open(f"{place}/{number}", "wb") as file:
            file.write(block)
        stored += 1
    except OSError as error:
        full = errno.errorcode[error.errno]
        break
print("stored:", stored, full)
for number in range(40):
    for place in ("/dev/shm", "."):
        if os.path.exists(f"{place}/{number}"):
            os.unlink(f"{place}/{number}")
try:
    for number in range(70_000):
        os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY))
except OSError as error:
    print("files:", number <= 65536, errno.errorcode[error.errno])
for name in os.listdir("."):
    if name.startswith("f"):
        os.unlink(name)
"""
    logs = printed(judge, code)
    assert "stored: 16 ENOSPC" in logs or "stored: 15 ENOSPC" in logs, logs
    assert "files: True ENOSPC" in logs


# The filter as a program, also for other machines


def run_filter(machine: str, number: int, *arguments: int, own: bool = True, arch: int | None = None) -> int:
    """Return the error with which the filter answers a system call, or 0 if the filter allows it."""
    lines = seccomp.program(machine, own_network=own, own_ipc=own)
    data = {0: number, 4: seccomp._MACHINES[machine] if arch is None else arch}
    data.update({16 + 8 * index: value & 0xFFFFFFFF for index, value in enumerate([*arguments, *[0] * 6][:6])})
    at = loaded = 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        match code:
            case seccomp._LOAD:
                loaded = data[value]
            case seccomp._RETURN:
                return 0 if value == seccomp._ALLOW else value & 0xFFFF
            case _:
                met = {
                    seccomp._EQUAL: loaded == value,
                    seccomp._AT_LEAST: loaded >= value,
                    seccomp._ANY_BIT: bool(loaded & value),
                }
                at += if_true if met[code] else if_false


NUMBERS = {  # name: x86-64, aarch64
    "read": (0, 63),
    "clone": (56, 220),
    "socket": (41, 198),
    "ioctl": (16, 29),
    "prctl": (157, 167),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "bpf": (321, 280),
    "shmget": (29, 194),
    "prlimit64": (302, 261),
    "kill": (62, 129),
    "execve": (59, 221),
    "mbind": (237, 235),
}
CASES = [
    ("read", (), 0),
    ("kill", (), 0),
    ("execve", (), 0),
    ("mbind", (), 0),
    ("ptrace", (), errno.EPERM),
    ("mount", (), errno.EPERM),
    ("bpf", (), errno.EPERM),
    ("clone", (signal.SIGCHLD,), 0),
    ("clone", (0x003D0F00,), 0),  # a thread
    ("clone", (0x10000000 | signal.SIGCHLD,), errno.EPERM),
    ("clone", (0x00020000,), errno.EPERM),
    ("socket", (1,), 0),
    ("socket", (16,), 0),
    ("socket", (2,), 0),
    ("socket", (38,), errno.EAFNOSUPPORT),
    ("ioctl", (0, 0x5412), errno.EPERM),
    ("ioctl", (0, 0xC020462A), 0),  # the NVIDIA driver
    ("ioctl", (0, (1 << 32) | 0x541C), errno.EPERM),  # the kernel only reads the low half
    ("prctl", (22,), errno.EPERM),
    ("prctl", (15,), 0),  # a thread's name
    ("prlimit64", (0,), 0),
    ("prlimit64", (1,), errno.EPERM),
    ("shmget", (), 0),
]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_filter(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    assert run_filter(machine, NUMBERS[name][machine == "aarch64"], *arguments) == expected


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_shuts_other_doors(machine: str) -> None:
    i386 = 0x40000003
    assert run_filter(machine, 0, arch=i386) == errno.ENOSYS
    assert run_filter(machine, 435) == errno.ENOSYS  # clone3
    for name, arguments in (("shmget", ()), ("socket", (2,)), ("socket", (10,))):
        assert run_filter(machine, NUMBERS[name][machine == "aarch64"], *arguments, own=False) != 0
    assert run_filter(machine, NUMBERS["socket"][machine == "aarch64"], 1, own=False) == 0
    if machine == "x86_64":
        assert run_filter(machine, 0x40000000 | 101) == errno.ENOSYS  # ptrace through the x32 interface


def test_system_call_numbers_are_those_of_the_headers() -> None:
    headers = {"x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), "aarch64": _generic_header()}
    for index, (machine, header) in enumerate(headers.items()):
        if not header.exists():
            pytest.skip(f"no {header}")
        found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
        numbers = {name: int(number) for name, number in found}
        for name, *ours in (*seccomp._REFUSED, *seccomp._SHARED_OBJECTS):
            if name in numbers:  # older headers do not have newer calls
                assert ours[index] == numbers[name], (machine, name)


def _generic_header() -> Path:
    return Path("/usr/include/asm-generic/unistd.h")


# One GPU


def fake_gpus(root: Path, minors: dict[str, int], uuid: str = "GPU-{}") -> None:
    (root / "dev").mkdir()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-nvswitch0", "null"):
        (root / "dev" / name).touch()
    for address, minor in minors.items():
        (root / f"dev/nvidia{minor}").touch()
        folder = root / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        text = f"Model: \t\t A GPU\nGPU UUID: \t {uuid.format(minor)}\nBus Type: \t PCIe\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)


def test_only_the_own_gpus_node_is_chosen(tmp_path: Path) -> None:
    fake_gpus(tmp_path, {"0000:19:00.0": 3, "0000:3b:00.0": 0, "0001:00:1f.0": 12})
    common = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    assert gpu.own_nodes(gpu.Gpu("GPU-3", (9, 9, 9)), tmp_path) == ("nvidia3", *common)
    assert gpu.own_nodes(gpu.Gpu("GPU-?", (1, 0, 0x1F)), tmp_path) == ("nvidia12", *common)
    assert gpu.own_nodes(gpu.Gpu("GPU-?", (0, 0x3B, 0)), tmp_path) == ("nvidia0", *common)
    with pytest.raises(Unavailable, match="does not report"):
        gpu.own_nodes(gpu.Gpu("GPU-7", (0, 7, 0)), tmp_path)


def test_a_gpu_without_its_node_is_not_guessed(tmp_path: Path) -> None:
    fake_gpus(tmp_path, {"0000:19:00.0": 0, "0000:1a:00.0": 1, "0000:1b:00.0": 2})
    (tmp_path / "dev/nvidia1").unlink()
    with pytest.raises(Unavailable, match="/dev/nvidia1 is missing"):
        gpu.own_nodes(gpu.Gpu("GPU-1", (0, 0x1A, 0)), tmp_path)


# Control groups


def fake_groups(
    root: Path, own: str, *, mounted: bool = True, controllers: str = "memory pids", enabled: str = ""
) -> Path:
    (root / "proc/self").mkdir(parents=True)
    line = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    (root / "proc/self/mountinfo").write_text("22 1 0:1 / / rw - ext4 /dev/vda rw\n" + (line if mounted else ""))
    (root / "proc/self/cgroup").write_text(f"0::{own}\n")
    group = root / "sys/fs/cgroup" / own.lstrip("/")
    group.mkdir(parents=True)
    for name, text in (("controllers", controllers), ("subtree_control", enabled), ("procs", "")):
        (group / f"cgroup.{name}").write_text(text)
    return group


def test_a_delegated_group_is_used(tmp_path: Path) -> None:
    group = fake_groups(tmp_path, "/service", controllers="cpu memory pids")
    left = group / "kerneldyno-runner-7"
    left.mkdir()
    assert cgroup.delegated(os.getpid(), tmp_path) == group
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert not left.exists(), "what a killed warden left is removed"


def test_the_evaluators_own_processes_are_moved_and_no_others(tmp_path: Path) -> None:
    group = fake_groups(tmp_path, "/service")
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 1)):
        (tmp_path / f"proc/{pid}").mkdir()
        (tmp_path / f"proc/{pid}/stat").write_text(f"{pid} (a) b) S {parent} 0 0")
    assert cgroup._family(10, tmp_path) == {10, 11, 12}
    (group / "cgroup.procs").write_text("12\n")
    cgroup.delegated(10, tmp_path)
    assert (group / "kerneldyno/cgroup.procs").read_text() == "12"


def test_the_second_cell_finds_what_the_first_has_made(tmp_path: Path) -> None:
    leaf = fake_groups(tmp_path, "/service/kerneldyno")
    for name, text in (("controllers", "memory pids"), ("subtree_control", "memory pids")):
        (leaf.parent / f"cgroup.{name}").write_text(text)
    assert cgroup.delegated(os.getpid(), tmp_path) == leaf.parent


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mounted": False}, "version 2 are not mounted"),
        ({"controllers": "cpu pids"}, "no memory controller in /service"),
    ],
)
def test_why_there_is_no_control_group(tmp_path: Path, change: dict[str, str], reason: str) -> None:
    fake_groups(tmp_path, "/service", **change)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match=reason):
        cgroup.delegated(os.getpid(), tmp_path)


class _Unlimited(cgroup.Group):
    """A group without limits, because the memory and pids controllers of a host may serve version 1."""

    def _write(self, name: str, text: str) -> None:
        if name not in ("memory.max", "pids.max"):
            super()._write(name, text)


def test_a_real_group_is_killed_as_one_and_removed() -> None:
    try:
        parent = cgroup._mounted(Path("/")) / f"kerneldyno-test-{os.getpid()}"
        parent.mkdir()
    except (Unavailable, OSError) as reason:
        pytest.skip(f"no writable control groups here: {reason}")
    try:
        group = _Unlimited(parent, cgroup.Limits(1 << 30, 10))
        (path,) = parent.glob("kerneldyno-runner-*")
        code = (
            "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text('0');"
            "os.fork(); os.fork() or os.setsid(); os.write(1, b'.'); time.sleep(60)"
        )
        command = [sys.executable, "-c", code, str(path / "cgroup.procs")]
        started = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert started.stdout is not None
        with started.stdout:
            assert started.stdout.read(4) == b"...."
            group.kill()
            assert started.wait(10) == -signal.SIGKILL
            assert started.stdout.read() == b"", "every descendant has closed the pipe"
        assert not group.ran_out_of_memory()
        group.remove()
        assert not list(parent.glob("kerneldyno-runner-*"))
    finally:
        parent.rmdir()


class _InFiles(cgroup.Group):
    """A group in a folder of ordinary files."""

    def _write(self, name: str, text: str) -> None:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self._own)
        with open(fd, "w") as file:
            file.write(text)


class _Refusing(_InFiles):
    def allow(self, memory_bytes: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")


def _warden(group: cgroup.Group | None) -> _Warden:
    """Return a warden that has a group, and no runner."""
    made = object.__new__(_Warden)
    made._group, made._memory_limit = group, 1 << 30
    return made


@pytest.mark.parametrize("grouped", [True, False])
def test_a_raised_limit_holds_for_the_warden_and_for_the_group(tmp_path: Path, grouped: bool) -> None:
    group = _InFiles(tmp_path, cgroup.Limits(_group_bytes(1 << 30), 10)) if grouped else None
    warden = _warden(group)
    assert warden._allow(5 << 30) == ""
    assert warden._memory_limit == 5 << 30
    found = [int(path.read_text()) for path in tmp_path.glob("*/memory.max")]
    assert found == ([_group_bytes(5 << 30)] if grouped else [])


def test_a_group_that_refuses_a_limit_leaves_the_wardens_as_it_was(tmp_path: Path) -> None:
    warden = _warden(_Refusing(tmp_path, cgroup.Limits(_group_bytes(1 << 30), 10)))
    assert "Permission denied" in warden._allow(5 << 30)
    assert warden._memory_limit == 1 << 30


def test_a_runner_that_gets_warm_has_no_limit_and_a_candidate_has_its_own_beyond_that() -> None:
    warden = _warden(None)
    warden._baseline = None
    assert warden._is_within_limit(1 << 40)
    warden._baseline = 3 << 30
    assert warden._is_within_limit(4 << 30)
    assert not warden._is_within_limit((4 << 30) + 1)


# A scratch without its own quota


def test_a_scratch_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "a/b/c"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(bytes(1 << 20))
    (tmp_path / "link").symlink_to("/")
    assert not scratch_is_full(str(tmp_path))
    monkeypatch.setattr("kerneldyno.evaluator.walls.limits.SCRATCH_BYTES", 1 << 19)
    assert scratch_is_full(str(tmp_path))
    monkeypatch.undo()
    begin = time.monotonic()
    assert SCRATCH_FILES == 65536
    assert not scratch_is_full(str(tmp_path / "missing"))
    assert time.monotonic() - begin < 1
