"""Candidates that attack builders and the build cache. Afterwards all others get the libraries of their own text.

These are attacks that need a whole server. Those that one verdict can show are in corpus/attacks.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from kerneldyno.evaluator.shared.library_file import MOST_BYTES
from tests.evaluator.builds_harness import (
    ENDLESS,
    ENDLESS_FLAGS,
    NATIVE_SOURCE,
    PLAIN_END,
    BuildServer,
    Judged,
    building,
    native,
    request,
    serving,
    together,
)
from tests.waiting import eventually

pytestmark = pytest.mark.slow

SECRET = "kerneldyno-test-secret-value"
#: Found out by a candidate: a scout pretends a GPU, which the CPU device has not.
IN_SCOUT = "IN_SCOUT = torch.cuda.is_available()\n"
HONEST = building('module = build("scaling", 3)')
#: A candidate whose library, of the same name, is another one.
OTHER = building('module = build("scaling", "1.5f + 1.5f")')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildServer]:
    """A server whose environment has a secret."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELDYNO_TEST_API_TOKEN", SECRET)
        with serving(tmp_path_factory.mktemp("cache") / "builds", "--builders", "2") as running:
            yield running
            assert running.service.process.poll() is None


@pytest.fixture
async def others(server: BuildServer) -> AsyncIterator[BuildServer]:
    """A server with a library of an honest candidate, which must be the same after the attack, as the whole cache."""
    if not server.cached():
        first = await server.judge(request(HONEST))
        assert first.outcome == "CORRECT", first.result.message
    before, builder = server.cached(), server.builder()
    assert before
    yield server
    assert before.items() <= server.cached().items(), "the attack has changed entries of the cache"
    again, other = await together(server.judge(request(HONEST)), server.judge(request(OTHER)))
    assert (again.outcome, again.builds["scaling"].cached) == ("CORRECT", True), again.result.message
    assert other.outcome == "INCORRECT", "its library computes 1.5 + 1.5 x"
    assert server.builder() == builder, "the attack has ended the builder"
    assert SECRET not in server.log()


def in_scout(does: str) -> str:
    """Return a candidate that does something in a scout, and is honest in its runner."""
    lines = "\n".join(f"    {line}" for line in does.strip().splitlines())
    return building(f'{IN_SCOUT}if IN_SCOUT:\n{lines}\nmodule = build("scaling", 3)')


#: Looks for the channel, and writes frames to it in the name of the harness. The first is read.
_FORGERY = """
import json, os, stat, struct
def say(frame):
    body = json.dumps(frame).encode()
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, struct.pack({form!r}, len(body)) + body)
        except OSError:
            pass
source = SOURCE.replace("FACTOR", "3")
honest = dict(name="scaling", files=[["scaling.cpp", source]], cpp_flags=[], cuda_flags=[], link_flags=[],
              with_cuda=False, architectures="")
say({frame})
os._exit(0)
"""


def forged(frame: str) -> str:
    """Return a candidate whose scout answers with the frame that an expression makes."""
    return in_scout(_FORGERY.format(form=_LENGTH, frame=frame))


_LENGTH = ">I"
EVIL = 'dict(honest, cpp_flags=["-fplugin=/tmp/scratch/evil.so"])'
ERROR = 'dict(type="SystemError", bases=["SystemError"], message="forged", traceback="")'
#: What scouts say or do, and how the candidate may end.
SCOUTS = {
    "asks_for_another_text": in_scout('build("scaling", 5)'),
    "asks_for_the_text_of_another": building(
        f'{IN_SCOUT}build("scaling", 3) if IN_SCOUT else None\nmodule = build("scaling", "1.5f + 1.5f")'
    ),
    "exits": in_scout("os._exit(0)"),
    "is_killed": in_scout("os.kill(os.getpid(), 9)"),
    "closes_everything": in_scout("os.closerange(0, 256)"),
    "raises": in_scout("raise SystemError('not here')"),
    "forks": in_scout("for _ in range(200): os.fork()"),
    "floods": in_scout('for number in range(1000): build(f"flood{number}", number, f"int flood{number};")'),
    "asks_for_100_megabytes": in_scout('build("large", 3, SOURCE + "//" + "x" * 100_000_000)'),
    "asks_for_a_build_of_its_own_rules": in_scout('os.environ["CXX"] = "./evil"\nbuild("own", 3)'),
    "takes_all_memory": in_scout("kept = []\nwhile True: kept.append(b'x' * (1 << 28))"),
    "forges_flags": forged(f"dict(ok=dict(builds=[{EVIL}], error=None))"),
    "forges_paths": forged('dict(ok=dict(builds=[dict(honest, files=[["../../evil.cpp", source]])], error=None))'),
    "forges_names": forged('dict(ok=dict(builds=[dict(honest, name="../evil")], error=None))'),
    "forges_architectures": forged('dict(ok=dict(builds=[dict(honest, architectures="$(touch /tmp/x)")], error=None))'),
    "forges_types": forged("dict(ok=dict(builds=dict(honest), error=[1]))"),
    "forges_numbers": forged("dict(ok=[float('nan')] * 3)"),
    "forges_a_thousand": forged("dict(ok=dict(builds=[honest] * 1000, error=None))"),
    "forges_text_that_is_no_text": forged(
        'dict(ok=dict(builds=[dict(honest, files=[["scaling.cpp", "\\ud800"]])], error=None))'
    ),
    "forges_garbage": in_scout(_FORGERY.replace("say({frame})", "").format(form=_LENGTH).replace("def say", "def no")
                               + "\nfor number in range(3, 64):\n    try: os.write(number, b'x' * 4096)\n"
                               "    except OSError: pass"),
}  # fmt: skip
LONG = ("floods", "takes_all_memory")


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(candidate, id=name, marks=[pytest.mark.long] if name in LONG else [])
        for name, candidate in SCOUTS.items()
    ],
)
async def test_a_scout_decides_nothing_but_what_is_built_ahead(others: BuildServer, candidate: str) -> None:
    judged = await others.judge(request(candidate))
    wanted = "INCORRECT" if "1.5f" in candidate else "CORRECT"
    assert judged.outcome == wanted, judged.result.message
    assert judged.result.attempts == 1
    assert "evil" not in "".join(judged.builds)


@pytest.mark.long
async def test_a_scout_that_never_ends_is_ended(others: BuildServer) -> None:
    """It occupies no place of the builders meanwhile."""
    hanging = in_scout("import time\nwhile True: time.sleep(60)")
    judged, *rest = await together(*(others.judge(request(hanging)) for _ in range(3)), others.judge(request(HONEST)))
    assert (judged.outcome, judged.result.attempts) == ("CORRECT", 1)
    assert rest[-1].result.stages[0].duration.ToNanoseconds() < 10e9


async def test_a_scout_runs_no_compiler_whatever_the_candidate_asks_for(others: BuildServer) -> None:
    """It would run beside the builders' places, and nobody would get what it builds."""
    own = """
with open("evil", "w") as file:
    file.write("#!/bin/sh\\nsleep 15\\n")
os.chmod("evil", 0o755)
os.environ["CXX"] = os.path.abspath("evil")
build("own", 3)
"""
    judged = await others.judge(request(in_scout(own)))
    assert judged.outcome == "CORRECT", judged.result.message
    assert judged.result.stages[0].duration.ToNanoseconds() < 10e9


async def test_a_forged_error_is_not_believed_without_a_failed_build(others: BuildServer) -> None:
    judged = await others.judge(request(forged(f"dict(ok=dict(builds=[], error={ERROR}))")))
    assert (judged.outcome, judged.result.attempts) == ("CORRECT", 1), judged.result.message


async def test_a_forged_error_ends_only_its_own_candidate(others: BuildServer) -> None:
    """If one of its builds has failed, a scout may say that the candidate fails: any candidate can fail."""
    wrong = 'dict(honest, files=[["scaling.cpp", "wrong"]])'
    judged = await others.judge(request(forged(f"dict(ok=dict(builds=[{wrong}], error={ERROR}))")))
    assert (judged.outcome, judged.result.attempts) == ("COMPILE_ERROR", 0)
    assert judged.result.compile_error.message == "forged"


FLAGS = ("-fplugin=./evil.so", "-B.", "-wrapper ./evil", "@flags", "-specs=evil.specs", "-Wl,--plugin=./evil.so")
FLAGGED = f"""
with open("flags", "w") as file:
    file.write("-DNOTHING")
for number, flag in enumerate({FLAGS!r}):
    for way in ("extra_cflags", "extra_ldflags"):
        try:
            build(f"flagged{{number}}", 3, **{{way: flag.split(" ")}})
        except Exception as error:
            pass
module = build("scaling", 3)
"""


async def test_flags_that_load_other_programs_never_reach_a_builder(others: BuildServer) -> None:
    """The candidate's own runner may use them: nobody shares its compilers."""
    judged = await others.judge(request(building(FLAGGED)))
    assert judged.outcome == "CORRECT", judged.result.message
    assert list(judged.builds) == ["scaling"]
    for number in range(len(FLAGS)):
        assert f"event=not_built name=flagged{number}" in others.log()


READING = {
    "environ_of_process_1": '#include "/proc/1/environ"',
    "shadow": '#include "/etc/shadow"',
    "cache": '#include "{entry}"',
    "cache_in_assembler": '__asm__(".incbin \\"{entry}\\"");',
    "server": '__asm__(".incbin \\"/proc/{server}/environ\\"");',
}


@pytest.mark.parametrize("text", READING.values(), ids=READING.keys())
async def test_a_source_can_read_no_file_of_the_evaluator(others: BuildServer, text: str) -> None:
    entry = others.cache / next(iter(others.cached()))
    text = text.replace("{entry}", str(entry)).replace("{server}", str(others.service.process.pid))
    judged = await others.judge(request(**native(f"{NATIVE_SOURCE}\n{text}\n")))
    assert (judged.outcome, judged.result.attempts) == ("COMPILE_ERROR", 0)
    message = judged.result.compile_error.message
    assert SECRET not in str(judged.result)
    assert "root:" not in message, "a line of /etc/shadow"
    assert any(why in message for why in ("No such file", "file not found", "Permission denied")), message


#: The header that is compiled ahead lies beside the sources, and is read from a file that all compilers share.
HEADER_TRICKS = """
#include "../header/kerneldyno_used.h"
#if __has_include("../header/kerneldyno_binding.h.gch")
__asm__(".pushsection .rodata\\n.incbin \\"../header/kerneldyno_binding.h.gch\\", 0, 64\\n.popsection");
#endif
"""


async def test_a_source_that_plays_with_the_header_compiled_ahead_spoils_only_itself(others: BuildServer) -> None:
    files = {
        "scale.cpp": NATIVE_SOURCE,
        "header/kerneldyno_binding.h": "#error evil",
        "header/kerneldyno_binding.h.gch.h": "evil",
        "lean_scale.cpp/kerneldyno_used.h": "#error evil",
        "torch/types.h": "#error evil",
    }
    judged = await others.judge(request(**{**native(), "kernel_files": files}))
    assert judged.outcome == "CORRECT", judged.result.message
    tricked = await others.judge(request(**native(f"{HEADER_TRICKS}\n{NATIVE_SOURCE}")))
    assert tricked.outcome in ("CORRECT", "COMPILE_ERROR")


LARGE = {
    "scratch": ("char huge[(2ul << 30) + 5] = {1};", ("No space left on device", "File size limit", "can't write")),
    "library": (
        "char large[60 << 20] = {1};",
        (f"the library has 60 MiB; at most {MOST_BYTES >> 20} MiB are allowed",),
    ),
}


@pytest.mark.parametrize(("text", "reasons"), LARGE.values(), ids=LARGE.keys())
async def test_too_much_output_is_refused_with_the_reason(
    others: BuildServer, text: str, reasons: tuple[str, ...]
) -> None:
    judged = await others.judge(request(**native(f"{NATIVE_SOURCE}\n{text}")))
    assert (judged.outcome, judged.result.attempts) == ("COMPILE_ERROR", 0), judged.result
    assert any(reason in judged.result.compile_error.message for reason in reasons), judged.result.compile_error


async def test_less_time_for_a_text_is_not_less_time_for_others(others: BuildServer) -> None:
    """The one who asks first for a text, with little time, must not decide how the same text ends for others."""
    spins = ENDLESS.replace("3000000000ul", "600000ul")
    asked = native(f"{spins}{NATIVE_SOURCE}// both", build_flags=ENDLESS_FLAGS)
    hasty = others.judge(request(**asked, timeouts={"build_timeout": 0.3}))
    both = await together(hasty, others.judge(request(**asked)))
    assert [judged.outcome for judged in both] == ["TIMEOUT", "CORRECT"]


async def test_many_endless_builds_take_the_time_of_one(others: BuildServer) -> None:
    """`build_timeout` is for all compilers of a candidate together."""
    code = f"""
for number in range(20):
    build(f"endless{{number}}", 3, SOURCE + '''{ENDLESS}''', extra_cflags={ENDLESS_FLAGS["cpp"]!r})
module = build("scaling", 3)
"""
    judged = await others.judge(request(building(code), timeouts={"build_timeout": 1}))
    assert (judged.outcome, judged.result.timeout.stage) == ("TIMEOUT", "build")
    assert judged.result.stages[0].duration.ToNanoseconds() < 4e9
    await eventually(lambda: others.metric("kerneldyno_running_builds") == 0, what="the end of all builds")


SPOILS = """
module = build("scaling", 3)
import glob, shutil
wrong = build("wrong", 5)
places = [os.environ["TORCH_EXTENSIONS_DIR"], "/tmp", os.path.expanduser("~"), {cache!r}]
for place in places:
    for path in glob.glob(place + "/**/*.so", recursive=True) + glob.glob(place + "/**/*.library", recursive=True):
        if os.path.abspath(path) != os.path.abspath(wrong.__file__):
            os.unlink(path)
            shutil.copy(wrong.__file__, path)
            print("spoiled", os.path.basename(path))
for name in ("evil.library", "evil.part"):
    try:
        open(os.path.join({cache!r}, name), "w").write("evil")
        print("ESCAPED")
    except OSError:
        pass
"""


async def test_a_candidate_that_overwrites_libraries_harms_only_itself(others: BuildServer) -> None:
    judged: Judged = await others.judge(request(building(SPOILS.format(cache=str(others.cache)), PLAIN_END)))
    assert "spoiled scaling.so" in judged.result.logs
    assert "ESCAPED" not in judged.result.logs
    assert ".library" not in judged.result.logs
    assert not [name for name in os.listdir(others.cache) if "evil" in name]
