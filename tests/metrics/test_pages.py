"""docs/metrics.md against the pages of real processes: names, types, labels, their values, and how many there are."""

from __future__ import annotations

import pytest

from scraped import Scrape, complaints, documented, documented_values
from watched_load import HOSTILE, Watched

SECTIONS = {
    "scheduler": ("Every process", "gRPC", "Scheduler"),
    "evaluator": ("Every process", "gRPC", "Evaluator"),
    "gateway": ("Every process", "Gateway"),
}
#: Series and bytes that a page may have with one device; docs/metrics.md has the measured figures.
MOST = {"scheduler": (1_200, 150_000), "evaluator": (1_500, 170_000), "gateway": (450, 60_000)}
#: Labels whose values are those of a process, a device or a contract, rather than of a table.
OPEN = {"version", "device", "layer", "route", "grpc_service", "grpc_method", "le"}

process = pytest.mark.parametrize("process", list(SECTIONS))


@process
def test_what_is_documented_is_served_and_nothing_else(watched: Watched, process: str) -> None:
    page, rows = documented(*SECTIONS[process]), watched.before[process].rows
    assert page == rows, f"only on the page: {sorted(page - rows)}; only served: {sorted(rows - page)}"


@process
def test_every_series_is_there_from_the_start_and_no_load_adds_one(watched: Watched, process: str) -> None:
    """A load with hostile names, ids, labels, sources and routes; crashes; and a judge that was killed and replaced."""
    before, after = set(watched.before[process].values), set(watched.after[process].values)
    assert after == before, f"new: {sorted(after - before)}; gone: {sorted(before - after)}"


@process
def test_label_values_are_those_of_the_table(watched: Watched, process: str) -> None:
    closed = documented_values()
    for name, labels in watched.after[process].values:
        for label, value in labels:
            assert label in closed or label in OPEN, f"{name} has a label without values: {label}"
            if label == "grpc_code":
                assert value.isupper()
            elif label not in OPEN:
                assert value in closed[label], f"{name}: {label}={value!r} is not in the table"


def test_the_tables_values_are_all_served(watched: Watched) -> None:
    served: dict[str, set[str]] = {}
    for page in watched.after.values():
        for _, labels in page.values:
            for label, value in labels:
                served.setdefault(label, set()).add(value)
    gpu = {"sensor", "limit", "xid"}
    missing = {
        label: values - served.get(label, set())
        for label, values in documented_values().items()
        if label not in gpu | {"grpc_code"}
    }
    missing["severity"] -= {"corrected", "uncorrected"}
    missing["clock"] -= {"sm", "memory"}
    # The table also names calls, in brackets behind the kinds of client.
    missing["client_kind"] -= {"StreamRewards", "Evaluate", "EvaluateOnce"}
    assert not {label: values for label, values in missing.items() if values}


@process
def test_nothing_that_anybody_wrote_is_on_a_page(watched: Watched, process: str) -> None:
    text = watched.after[process].text
    for written in (*HOSTILE, "evil", "team", "pascal", "m-right", "node-a"):
        assert written not in text


@process
def test_a_page_is_small(watched: Watched, process: str) -> None:
    series, size = MOST[process]
    assert len(watched.after[process].values) <= series
    assert len(watched.after[process].text) <= size


@process
def test_promtool_finds_nothing_to_complain_of(watched: Watched, process: str) -> None:
    assert complaints(watched.after[process]) == ""


def test_a_histograms_buckets_add_up(watched: Watched) -> None:
    """What `prometheus_client.parser` does not look at."""
    page: Scrape = watched.after["evaluator"]
    for (name, labels), count in page.values.items():
        if name.endswith("_count"):
            top = (name.removesuffix("_count") + "_bucket", labels | {("le", "+Inf")})
            assert page.values[top] == count
