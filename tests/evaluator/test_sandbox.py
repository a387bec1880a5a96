"""The sandbox of a candidate: candidates attack it from inside, and the tests check what they leave behind."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from tests.evaluator.judge_harness import SECRET, Judge, candidate, limits, printed, request

pytestmark = pytest.mark.alone


def test_every_layer_is_proved_here(judge: Judge) -> None:
    layers = {layer["name"]: layer for layer in judge.ready["sandbox_layers"]}
    inactive = {name for name, layer in layers.items() if not layer["active"]}
    assert inactive <= {"cgroup"}, inactive
    assert {"pid_namespace", "mount_namespace", "landlock", "seccomp", "network", "processes", "files"} <= layers.keys()
    assert layers["cgroup"]["detail"], "a layer that cannot be had says why"


def test_no_secret_is_in_reach(judge: Judge) -> None:
    (secret,) = SECRET.values()
    code = f"""
import glob, os
def read(name):
    try:
        return open(name, "rb").read()
    except PermissionError:
        return b""
found = [name for name in glob.glob("/proc/*/environ") if {secret!r}.encode() in read(name)]
print("found:", found, "env:", {secret!r} in str(os.environ))
"""
    assert "found: [] env: False" in printed(judge, code)


def test_the_host_cannot_be_seen(judge: Judge) -> None:
    here = os.path.abspath(__file__)
    code = f"""
import os
print("tests:", os.path.exists({here!r}), "pids:", sum(name.isdigit() for name in os.listdir("/proc")))
for path in ("/etc/shadow", "/var", "/home", "/mnt", "/sys/fs", "/sys/firmware", "/sys/kernel/debug"):
    print(path, os.path.exists(path))
"""
    logs = printed(judge, code)
    assert "tests: False" in logs
    assert "pids: 1" in logs, "only the candidate; not even the warden, process 1"
    for path in ("/etc/shadow", "/var", "/home", "/mnt", "/sys/fs", "/sys/firmware", "/sys/kernel/debug"):
        assert f"{path} False" in logs


def test_the_scratch_is_private_and_new(judge: Judge) -> None:
    code = "import os\nprint('before:', os.path.exists('mark'))\nopen('mark', 'w').write('x')\n"
    assert "before: False" in printed(judge, code)
    assert "before: False" in printed(judge, code)


def test_nothing_outside_the_scratch_can_be_written(judge: Judge) -> None:
    code = """
import os, sys, torch
for directory in ["/", "/tmp", "/usr", "/etc", "/dev", os.path.dirname(torch.__file__), os.path.dirname(os.__file__)]:
    try:
        open(directory + "/written", "w").close()
        print("wrote", directory)
    except OSError:
        pass
print("tried")
"""
    logs = printed(judge, code)
    assert "tried" in logs
    assert "wrote" not in logs


def test_powers_cannot_be_regained(judge: Judge) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("setuid:", libc.setuid(0), "kill:", libc.kill(1, 9), "mount:", libc.mount(b"none", b"/usr", b"tmpfs", 0, None))
print("umount:", libc.umount2(b"/usr", 2), "uid:", os.getuid() != 0)
"""
    logs = printed(judge, code)
    assert "setuid: -1" in logs
    assert "mount: -1" in logs
    assert "umount: -1" in logs
    # Process 1 of the namespace is the warden. A process inside cannot kill it.
    assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


def test_survivors_are_killed(judge: Judge) -> None:
    before = {process.pid for process in psutil.process_iter()}
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
    assert judge.evaluate(request(candidate(prologue=code)))["outcome"] == "CORRECT"
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        # A spare (warden, its outer half, runner) may have started meanwhile. A surviving sleeper would be one more.
        new = [p for p in psutil.process_iter() if p.pid not in before and _is_ours(p, judge)]
        if len(new) <= 3:
            return
        time.sleep(0.1)
    pytest.fail(f"left behind: {new}")


def _is_ours(process: psutil.Process, judge: Judge) -> bool:
    try:
        return any(parent.pid == judge.zygote.pid for parent in process.parents())
    except psutil.Error:
        return False


def test_a_fork_bomb_is_one_outcome(judge: Judge) -> None:
    bomb = candidate(
        body="import os\n        while True:\n            try: os.fork()\n            except OSError: pass"
    )
    result = judge.evaluate(request(bomb, **limits(compile=2)))
    assert result["outcome"] in ("TIMEOUT", "RUNTIME_ERROR"), result["message"]
    assert result["logs"].count("processes: killed") <= 1  # while it ends, it is not checked again
    assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


def test_no_process_outlives_the_judge() -> None:
    with Judge() as running:
        token = running.submit(request(candidate(body="import time; time.sleep(60)")))
        while running.wait_for(token, "stage")["stage"] != "STAGE_COMPILING":
            pass
        family = psutil.Process(running.zygote.pid).children(recursive=True)
        assert family
        running.process.kill()
        running.zygote.wait(20)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def test_off_reports_what_is_open() -> None:
    with Judge(sandbox="off") as running:
        inactive = {layer["name"] for layer in running.ready["sandbox_layers"] if not layer["active"]}
        assert {"pid_namespace", "network_namespace", "mount_namespace", "landlock", "seccomp", "network"} <= inactive
        # Even then there is one outcome, and the tree is killed.
        assert running.evaluate(request(candidate()))["outcome"] == "CORRECT"
        crash = request(candidate(body="import os; os._exit(3)"))
        assert running.evaluate(crash)["outcome"] == "RUNTIME_ERROR"
