"""Without namespaces: what Landlock and seccomp alone protect, and what `--sandbox=require` decides then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kerneldyno.evaluator.judge.runners.ladder import shortfall
from kerneldyno.evaluator.walls import Layer, Unavailable, landlock
from kerneldyno.evaluator.walls.limits import MAX_TASKS
from tests.evaluator.judge_harness import DEVICE, Judge, candidate, limits, printed, request

pytestmark = pytest.mark.alone

#: Starts a program as root of an ordinary container: without CAP_SYS_ADMIN (21), and therefore without namespaces.
NO_NAMESPACES = (
    *(sys.executable, "-c"),
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 21, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])",
)
#: Starts a program as an ordinary user, as far as root can imitate one.
NO_ROOT = ("unshare", "--user", "--map-user=1000", "--map-group=1000")

MECHANISMS = ("user_namespace", "pid_namespace", "network_namespace", "ipc_namespace", "mount_namespace")


def has_landlock() -> bool:
    try:
        return landlock.version() >= 6
    except Unavailable:
        return False


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes namespaces away from root")
needs_landlock = pytest.mark.skipif(not has_landlock(), reason="needs Landlock 6 (Linux 6.12)")


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(sandbox="require", prefix=NO_NAMESPACES) as running:
        assert running.ready["op"] == "ready", running.ready
        yield running


@needs_root
@needs_landlock
def test_filters_alone_stop_the_same_attempts(judge: Judge) -> None:
    layers = {layer["name"]: layer for layer in judge.ready["sandbox_layers"]}
    inactive = {name for name, layer in layers.items() if not layer["active"]}
    assert inactive <= {*MECHANISMS, "process_list", "cgroup"}
    assert "unshare: Operation not permitted" in layers["pid_namespace"]["detail"], "it says why"


@needs_root
@needs_landlock
def test_without_namespaces_only_the_scratch_can_be_written_and_others_not_be_read(judge: Judge) -> None:
    here = os.path.abspath(__file__)
    code = f"""
import os, socket
for directory in ["/tmp", "/var/tmp", "/dev/shm", "/run", os.path.dirname(os.getcwd())]:
    try:
        open(directory + "/written", "w").close()
        print("wrote", directory)
    except OSError:
        pass
for path in [{here!r}, "/etc/hostname", "/var/log", os.path.dirname(os.getcwd())]:
    try:
        print("read", len(os.listdir(path) if os.path.isdir(path) else open(path).read()))
    except OSError:
        pass
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try:
        print("socket", socket.socket(socket.AF_INET, kind))
    except OSError:
        pass
try:
    os.kill(os.getppid(), 0)
    print("signalled")
except OSError:
    pass
open("mine", "w").write("x")
print("tried", open("mine").read())
"""
    logs = printed(judge, code)
    assert "tried x" in logs
    assert not any(word in logs for word in ("wrote", "read ", "socket ", "signalled")), logs


@needs_root
@needs_landlock
def test_without_a_quota_the_scratch_is_watched(judge: Judge) -> None:
    hog = candidate(
        body="""import os, time
        for number in range(1200):
            os.makedirs(f"d{number % 7}", exist_ok=True)
            with open(f"d{number % 7}/{number}", "wb") as file: os.posix_fallocate(file.fileno(), 0, 1 << 20)
        time.sleep(20)"""
    )
    result = judge.evaluate(request(hog, **limits(compile=15)))
    assert result["outcome"] == "RUNTIME_ERROR", result["message"]
    assert "more than 1024 MiB in the scratch: killed" in result["logs"]
    assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


@needs_root
@pytest.mark.skipif(DEVICE != "cpu:0", reason="an ordinary user of a made-up namespace may not open the GPU")
def test_an_ordinary_user_gets_the_whole_sandbox() -> None:
    if subprocess.run([*NO_ROOT, sys.executable, "-c", "pass"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    with Judge(sandbox="require", prefix=NO_ROOT) as running:
        layers = {layer["name"]: layer["active"] for layer in running.ready["sandbox_layers"]}
        # `process_list`: the imitated user is still in root's group, which may see everything.
        assert all(active for name, active in layers.items() if name not in ("cgroup", "process_list")), layers
        assert running.evaluate(request(candidate()))["outcome"] == "CORRECT"


def layers(*lost: str) -> list[Layer]:
    names = [*MECHANISMS, "landlock", "seccomp", "cgroup", "network", "files", "kernel", "process_list", "one_gpu"]
    return [Layer(name, name not in lost, "") for name in names]


def test_what_require_needs() -> None:
    assert shortfall(layers()) == []
    assert shortfall(layers("cgroup", "process_list", "one_gpu")) == []
    assert shortfall(layers(*MECHANISMS, "process_list")) == []
    assert shortfall(layers("landlock", "seccomp", "kernel")) == []
    assert shortfall(layers("network")) == ["network"]
    assert shortfall(layers("pid_namespace", "seccomp")) == ["pid_namespace", "seccomp"]
    assert shortfall(layers(*MECHANISMS, "kernel")) == ["kernel"]


@needs_root
@needs_landlock
def test_without_namespaces_each_candidate_still_has_its_own_number_of_threads(judge: Judge) -> None:
    asked = request(candidate(prologue=crowd(MAX_TASKS - 60)))
    results = judge.evaluate_together(asked, asked)
    assert [result["outcome"] for result in results] == ["CORRECT"] * 2, [result["message"] for result in results]
    greedy = judge.evaluate(request(candidate(prologue=crowd(MAX_TASKS + 60))))
    assert greedy["outcome"] == "RUNTIME_ERROR"
    assert f"more than {MAX_TASKS} processes and threads: killed" in greedy["logs"]


def crowd(count: int) -> str:
    """Return code that starts `count` threads, which stay for two seconds."""
    return f"""
import threading, time
threading.stack_size(1 << 16)
for _ in range({count}):
    threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
time.sleep(2)
"""
