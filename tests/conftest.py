"""Setup of all tests: hypothesis, interrupts, build caches, the markers of pyproject.toml, a judge and services."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import lifetime, own_caches, purity, sampling

if TYPE_CHECKING:
    from kerneldyno.client import LocalServices
    from tests.evaluator.judge_harness import Judge
    from tests.postgres import PostgresServer

#: Files and folders that share a judge or services for a session. If files run in parallel, one worker runs all files
#: of a group.
_TOGETHER: dict[str, tuple[str, ...]] = {
    "services": ("tests/e2e", "tests/rollout/test_rollout_e2e.py", "tests/client/test_client_doctor.py"),
    "a judge": (
        "tests/evaluator/test_dtypes.py",
        "tests/evaluator/test_judge_outcomes.py",
        "tests/evaluator/test_judge_rules.py",
        "tests/evaluator/test_native.py",
        "tests/evaluator/test_parameters.py",
        "tests/evaluator/test_reference_backend.py",
        "tests/evaluator/test_stateful_references.py",
        "tests/evaluator/test_torch_settings.py",
        "tests/evaluator/test_unusual_modules.py",
        "tests/evaluator/test_value_properties.py",
        "tests/evaluator/test_values.py",
        "tests/rewards/test_feedback_real.py",
    ),
}
#: The same, but only in a sample. Each file of the whole corpora takes minutes, so those files run in parallel.
_TOGETHER_IN_A_SAMPLE: dict[str, tuple[str, ...]] = {"corpora": ("tests/corpus",)}

# Files that run in parallel share the processors; torch's threads would only compete for them.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests interrupt and hang up on processes that they have started. A run in the background ignores these signals (a shell's
# & ignores SIGINT, nohup ignores SIGHUP), and all processes that it starts would ignore them, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope=lifetime.of_a_judge)
def judge() -> Iterator[Judge]:
    """The judge that most tests of candidates share. Modules that need another one define their own `judge`."""
    from tests.evaluator.judge_harness import SECRET, Judge  # imported here, because few tests need it

    with Judge(environment=SECRET) as running:
        assert running.ready["op"] == "ready", running.ready
        yield running


@pytest.fixture(scope="session")
def cpu_services() -> Iterator[LocalServices]:
    """A scheduler and an evaluator on the CPU device. Tests that kill services, or measure them, start their own."""
    from kerneldyno.client import LocalServices

    with LocalServices(devices="cpu") as running:
        yield running
        running.check()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server that tests share. Tests that stop a server start their own."""
    from tests.postgres import PostgresServer

    server = PostgresServer()
    yield server
    server.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which `make test` chooses a sample of the corpora and of all other tests that have one."""
    parser.addoption(
        "--corpus",
        choices=("whole", "part", "sample"),
        default="whole",
        help="all tests with the marker `corpus` and all examples of hypothesis, or less of them: tests/sampling.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set up build caches. Tell tests/sampling.py and hypothesis whether this run is a sample."""
    own_caches.use(config)
    sampling.is_sample = config.getoption("corpus") == "sample"
    # How long an example takes depends on what else the machine does. A sample has the same examples each time.
    settings.register_profile(
        "kerneldyno", deadline=None, max_examples=sampling.examples(100), derandomize=sampling.is_sample
    )
    settings.load_profile("kerneldyno")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection: it would take time to search a million objects that stay alive."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the garbage collector see these objects again; otherwise bindings report leaks at exit."""
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove tests that are not in the sample, skip GPU tests unless a GPU is required, and put slow files first."""
    if config.getoption("corpus") != "whole":
        left_out = _not_chosen(items)
        long = {item.nodeid for item in items if item.get_closest_marker("long")}
        left_out |= {each for each in long if sampling.is_sample or not sampling.has_its_turn(each, 2)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]
    # GPU tests are skipped unless the variable is set. `make test-gpu` sets it; there they fail without a GPU.
    if not os.environ.get("KERNELDYNO_REQUIRE_GPU"):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: make test-gpu"))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # stable: files stay together


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, give each group of `_TOGETHER` to one worker."""
    if config.getoption("dist") != "loadfile":
        return None
    together = {**_TOGETHER, **(_TOGETHER_IN_A_SAMPLE if sampling.is_sample else {})}
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = file.rpartition("/")[0]
            return next((group for group, paths in together.items() if file in paths or folder in paths), file)

    return Scheduling(config, log)


def _not_chosen(items: list[pytest.Item]) -> set[str]:
    """Return the ids of the tests of candidates that the sample, or the part, leaves out."""
    choose = sampling.sample if sampling.is_sample else sampling.part
    files: dict[Path, dict[str, str]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("corpus") and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            files[item.path][item.callspec.id] = item.nodeid
    left_out: set[str] = set()
    for tests in files.values():
        chosen = choose(tests)
        left_out |= {nodeid for name, nodeid in tests.items() if name not in chosen}
    return left_out


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Make a test with the marker `pure` fail if it or one of its fixtures starts a process or uses a socket."""
    if item.get_closest_marker("pure") is None:
        return (yield)
    with purity.watch():
        return (yield)
