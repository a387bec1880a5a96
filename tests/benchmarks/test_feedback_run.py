"""benchmarks/feedback.py: its figures against those by hand, its options, and one small run with real CPU services."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.feedback import bootstrap, figures, main
from benchmarks.feedback_variants import of_file

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.feedback", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)


def test_figures() -> None:
    row = figures({"a": [1, 3], "b": [4, 4], "c": [2, 2]}, {"a": "raises", "b": "raises", "c": "wrong values"}, turns=3)
    assert row["raises"] == [0.25, 0.25, 0.5]
    assert row["wrong values"] == [0.0, 1.0, 1.0]
    assert row["all"] == [pytest.approx(1 / 6), pytest.approx(0.5), pytest.approx(2 / 3)]
    assert "both" not in row
    assert row["mean_turns"] == pytest.approx((2 + 4 + 2) / 3)
    low, high = row["interval"]
    assert 0 <= low < 2 / 3 < high <= 1


def test_the_interval_is_over_programs_and_the_same_each_time() -> None:
    assert bootstrap([1.0] * 9) == (1.0, 1.0)
    low, high = bootstrap([0.0, 1.0] * 20)
    assert (low, high) == bootstrap([0.0, 1.0] * 20)
    assert 0.3 < low < 0.4 < 0.6 < high < 0.7


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--variants", "none,poems"], "'poems' is unknown; choose of none, outcome"),
        (["--seeds", "0"], "at least 1"),
        (["--draws", "0"], "at least 1"),
        (["--cases", "0"], "at least 1"),
        (["--compare", "/nowhere.py"], "/nowhere.py"),
    ],
)
def test_options_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["feedback", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_another_feedback_has_rows_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("def feedback(result, *, limit, extraction): return 'x' * limit\n")
    rows = of_file(tmp_path / "old.py")
    assert set(rows) == {"other", "other, 256 characters"}


@pytest.mark.long
def test_a_small_run(tmp_path: Path) -> None:
    arguments = ["--cases", "5", "--seeds", "2", "--draws", "1", "--turns", "2", "--variants", "none,default"]
    done = run(*arguments, "--json", str(tmp_path / "run.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| default |" in done.stdout
    assert "The family `slow` was left out: it needs a GPU" in done.stdout
    measured = json.loads((tmp_path / "run.json").read_text())
    assert (measured["device"], measured["unjudged"], measured["not_as_they_claim"]) == ("cpu", 0, [])
    assert "slow" not in measured["families"].values()
    rows = measured["rows"]
    assert all(len(runs) == 2 for runs in measured["episodes"]["default"].values())
    assert rows["oracle"]["all"] == [1.0, 1.0]
    assert rows["default"]["all"][-1] > rows["none"]["all"][-1]
