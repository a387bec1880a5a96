"""Tests of GPU health: the series that we serve when NVIDIA's own binding uses a library of ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pynvml
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kerneldyno.evaluator.server.gpu_metrics import XIDS, GpuHealth
from kerneldyno.evaluator.shared.nvml import THROTTLE_REASONS, Driver, GpuState
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.metrics.nvml_library import Gpu, Library, h200, workstation
from tests.metrics.scraped import Scrape, complaints, documented, documented_values

UUID, OTHER = "GPU-3e0b7c52-a1c1-9d0f-8d3c-55a1f0c9e3aa", "GPU-99999999-0000-0000-0000-000000000000"


class Watching:
    """A GpuHealth with a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.health = GpuHealth(self.registry, period=0.05)

    def scrape(self) -> Scrape:
        return Scrape.read(generate_latest(self.registry).decode())

    def until(self, condition: Callable[[Scrape], bool], seconds: float = 10.0) -> Scrape:
        deadline = time.monotonic() + seconds
        while not condition(page := self.scrape()):
            assert time.monotonic() < deadline, page.text
            time.sleep(0.02)
        return page


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Library | None], Watching]]:
    made: list[Watching] = []

    def start(library: Library | None) -> Watching:
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        if library is None:  # the loader finds no library, even if this machine has one
            monkeypatch.setattr(pynvml, "CDLL", _missing)
        made.append(Watching())
        return made[-1]

    yield start
    for one in made:
        one.health.stop()


def _missing(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


Start = Callable[[Library | None], Watching]


def up(value: float, device: str = "cuda:0") -> Callable[[Scrape], bool]:
    key = ("kerneldyno_gpu_up", frozenset({("device", device)}))
    return lambda page: page.values.get(key) == value


def test_a_gpu_that_tells_everything_has_every_documented_series(watching: Start) -> None:
    one = watching(Library(h200(UUID)))
    one.health.watch("cuda:0", UUID)
    page = one.until(up(1))
    assert page.rows == documented("GPU health")
    value = page.value
    assert (
        value("kerneldyno_gpu_info", device="cuda:0", model="NVIDIA H200", uuid=UUID, driver_version="570.86.15") == 1
    )
    assert value("kerneldyno_gpu_temperature_celsius", sensor="gpu") == 41
    assert value("kerneldyno_gpu_temperature_celsius", sensor="memory") == 47
    assert value("kerneldyno_gpu_temperature_limit_celsius", limit="slowdown") == 89
    assert value("kerneldyno_gpu_temperature_limit_celsius", limit="shutdown") == 92
    assert value("kerneldyno_gpu_clock_hertz", clock="sm") == 1.98e9
    assert value("kerneldyno_gpu_clock_limit_hertz", clock="memory") == 3.201e9
    throttled = {reason: value("kerneldyno_gpu_throttled", reason=reason) for reason in THROTTLE_REASONS.values()}
    assert [reason for reason, active in throttled.items() if active] == ["sw_power_cap", "sw_thermal_slowdown"]
    assert value("kerneldyno_gpu_power_watts") == 412.5
    assert value("kerneldyno_gpu_power_limit_watts") == 700
    assert value("kerneldyno_gpu_utilization_ratio") == 0.87
    assert value("kerneldyno_gpu_memory_bytes") == 150_754_820_096
    assert value("kerneldyno_gpu_memory_used_bytes") == 1_754_820_096
    assert value("kerneldyno_gpu_ecc_errors_total", severity="corrected") == 3
    assert value("kerneldyno_gpu_ecc_errors_total", severity="uncorrected") == 1
    assert value("kerneldyno_gpu_remapped_rows", severity="corrected") == 2
    assert value("kerneldyno_gpu_row_remap_pending") == 1
    assert value("kerneldyno_gpu_row_remap_failed") == 0


def test_labels_are_those_of_the_table_and_promtool_has_no_complaint(watching: Start) -> None:
    one = watching(Library(h200(UUID)))
    one.health.watch("cuda:0", UUID)
    page = one.until(up(1))
    closed = documented_values()
    served: dict[str, set[str]] = {}
    for _, labels in page.values:
        for label, value in labels:
            served.setdefault(label, set()).add(value)
    for label in ("sensor", "limit", "xid"):
        assert served[label] == closed[label]
    for label in ("clock", "severity", "reason"):
        assert served[label] <= closed[label]
    assert len(page.values) <= 50, "series for each GPU"
    assert complaints(page) == ""


def test_what_a_gpu_cannot_tell_is_not_there(watching: Start) -> None:
    one = watching(Library(workstation(UUID)))
    one.health.watch("cuda:0", UUID)
    page = one.until(up(1))
    assert page.value("kerneldyno_gpu_temperature_celsius") == 55
    assert page.value("kerneldyno_gpu_memory_used_bytes") == 40
    served = {name for name, _, _ in page.rows}
    assert served == {
        f"kerneldyno_gpu_{name}" for name in ("up", "info", "temperature_celsius", "memory_bytes", "memory_used_bytes")
    }


def test_a_lost_gpu_is_down_and_comes_back(watching: Start) -> None:
    gpu, other = h200(UUID), h200(OTHER)
    library = Library(gpu, other)
    one = watching(library)
    one.health.watch("cuda:0", UUID)
    one.health.watch("cuda:1", OTHER)
    one.until(lambda page: up(1)(page) and up(1, "cuda:1")(page))
    gpu.lost = True
    page = one.until(up(0))
    assert up(1, "cuda:1")(page), "the other one is not affected"
    left = {name for name, labels in page.values if ("device", "cuda:0") in labels}
    assert left == {"kerneldyno_gpu_up", "kerneldyno_gpu_xid_errors_total"}, "no stale temperature is shown"
    library.errors.put((gpu, 79))
    key = ("kerneldyno_gpu_xid_errors_total", frozenset({("device", "cuda:0"), ("xid", "79")}))
    one.until(lambda page: page.values[key] == 1)  # counted although the GPU no longer answers
    gpu.lost = False
    one.until(up(1))


def test_xids_are_counted_by_gpu_and_unknown_ones_together(watching: Start) -> None:
    gpu, other = h200(UUID), h200(OTHER)
    library = Library(gpu, other)
    one = watching(library)
    one.health.watch("cuda:0", UUID)
    one.health.watch("cuda:1", OTHER)
    page = one.until(lambda page: up(1)(page) and up(1, "cuda:1")(page))
    assert page.value("kerneldyno_gpu_xid_errors_total") == 0, "there from the start"
    for where, xid in ((gpu, 79), (gpu, 79), (other, 31), (gpu, 4242), (gpu, 4243)):
        library.errors.put((where, xid))
    page = one.until(lambda page: page.value("kerneldyno_gpu_xid_errors_total") == 5)
    counted = {
        (dict(labels)["device"], dict(labels)["xid"]): value
        for (name, labels), value in page.values.items()
        if name == "kerneldyno_gpu_xid_errors_total" and value
    }
    assert counted == {("cuda:0", "79"): 2, ("cuda:0", "other"): 2, ("cuda:1", "31"): 1}
    assert sum(name == "kerneldyno_gpu_xid_errors_total" for name, _ in page.values) == 2 * len(XIDS)
    assert set(library.listening) == {UUID, OTHER}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reading_does_not_outlive_those_who_look(watching: Start) -> None:
    """If a bug kills the thread that reads the GPUs, the GPU counts as down and its temperature is gone."""
    gpu = h200(UUID)
    one = watching(Library(gpu))
    one.health.watch("cuda:0", UUID)
    one.until(up(1))
    gpu.numbers["nvmlDeviceGetMemoryInfo"] = "nonsense"
    page = one.until(up(0))
    assert "kerneldyno_gpu_temperature_celsius" not in {name for name, _ in page.values}


@pytest.mark.parametrize("library", [None, Library(), Library(Gpu(OTHER))], ids=["no_nvml", "no_gpu", "another_gpu"])
def test_without_nvml_there_are_no_series(
    watching: Start, library: Library | None, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no driver, or no GPU has this UUID, as with a MIG slice."""
    one = watching(library)
    one.health.watch("cuda:0", UUID)
    time.sleep(0.3)
    assert one.scrape().values == {}
    assert len(caplog.records) <= 1, "said once, not with every look"
    started = time.monotonic()
    one.health.stop()
    assert time.monotonic() - started < 1.5


def test_on_the_cpu_nvml_is_not_even_loaded(watching: Start) -> None:
    one = watching(Library(h200(UUID)))
    assert one.health._thread is None
    assert one.scrape().values == {}


def test_the_state_of_a_gpu_is_numbers_that_a_result_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", Library(h200(UUID)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    driver = Driver()
    seen = driver.state(driver.find(UUID))
    expected = [name for bit, name in THROTTLE_REASONS.items() if (0x04 | 0x20 | 0x01) & bit]
    assert seen == GpuState(1980, 3201, 41, 412.5, tuple(expected))
    assert expected
    state = pb.DeviceState(
        sm_clock_mhz_before=seen.sm_clock_mhz,
        temperature_celsius=seen.temperature_celsius,
        power_watts=seen.power_watts,
        throttle_reasons=seen.throttle_reasons,
    )
    assert (state.sm_clock_mhz_before, state.temperature_celsius, state.power_watts) == (1980, 41, 412.5)
