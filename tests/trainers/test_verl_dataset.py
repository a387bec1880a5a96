"""Tests of the data set converter: verl's own reader reads the files that it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from verl.utils.dataset.rl_dataset import RLHFDataset

from kerneldyno.trainers.turns import problem_of
from kerneldyno.verl import dataset
from tests.trainers import small_models
from tests.trainers import verl_harness as harness

PROBLEMS = Path(__file__).parents[2] / "corpus" / "problems"


def read(path: Path, tmp_path: Path) -> RLHFDataset:
    config = harness.config(small_models.save(tmp_path / "model"), "data.max_prompt_length=20000")
    return RLHFDataset(str(path), small_models.tokenizer(), config.data)


def test_a_folder_in_kernelbenchs_form(tmp_path: Path) -> None:
    for level, name in ((1, "10_b"), (1, "9_a"), (2, "1_c")):
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(harness.REFERENCE + f"# {name}\n")
    out = tmp_path / "train.parquet"
    assert dataset.main([str(tmp_path / "KernelBench"), str(out)]) == 0
    rows = read(out, tmp_path)
    assert [row["extra_info"]["problem_id"] for row in rows] == ["level1/9_a", "level1/10_b", "level2/1_c"]
    assert [row["data_source"] for row in rows] == ["KernelBench/level1", "KernelBench/level1", "KernelBench/level2"]
    assert [row["index"] for row in rows] == [0, 1, 2]
    for row in rows:
        problem = problem_of(row)
        assert problem.reference_code == row["reward_model"]["ground_truth"]
        assert problem.id == row["extra_info"]["problem_id"]
        (message,) = row["raw_prompt"]
        assert problem.reference_code.strip() in message["content"]
        assert row["agent_name"] == "kernel_agent"


def test_every_problem_of_the_corpus_survives_the_round_trip(tmp_path: Path) -> None:
    out = tmp_path / "all.parquet"
    command = [sys.executable, "-m", "kerneldyno.verl.dataset", str(PROBLEMS), str(out), "--backend", "torch"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "rows; the longest prompt" in ran.stdout
    rows = read(out, tmp_path)
    sources = {path.stem: path.read_text() for path in PROBLEMS.glob("*.py")}
    seen = {}
    for row in rows:
        problem = problem_of(row)
        assert problem.request().backend == "torch"
        seen[problem.id] = problem.reference_code
    assert seen == {name: sources[name] for name in seen}
    assert len(seen) > 100


def test_rows_of_other_data_sets_keep_their_prompts_when_asked(tmp_path: Path) -> None:
    theirs = {
        "data_source": "cudaLLM",
        "prompt": [{"role": "user", "content": "Optimize this."}],
        "reward_model": {"style": "rule", "ground_truth": harness.REFERENCE.replace("Model", "Net")},
        "extra_info": {"uuid": "x1", "entry_point": "Net", "level": "2"},
    }
    source = tmp_path / "theirs.jsonl"
    source.write_text(json.dumps(theirs) + "\n")
    kept, ours = tmp_path / "kept.parquet", tmp_path / "ours.parquet"
    assert dataset.main([str(source), str(kept), "--keep-prompts", "--agent", "none"]) == 0
    assert dataset.main([str(source), str(ours)]) == 0
    (row,) = pyarrow.parquet.read_table(kept).to_pylist()
    assert row["prompt"] == theirs["prompt"]
    assert "agent_name" not in row
    assert problem_of(row).entry_point == "Net"
    (row,) = pyarrow.parquet.read_table(ours).to_pylist()
    assert "NetNew" in row["prompt"][0]["content"]


def test_what_cannot_be_converted_is_said_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, broken, out = tmp_path / "empty", tmp_path / "broken", tmp_path / "out.parquet"
    empty.mkdir()
    broken.mkdir()
    (broken / "p.py").write_text("class Model(:\n")
    good = tmp_path / "p.py"
    good.write_text(harness.REFERENCE)
    cases = {
        (str(empty), str(out)): "no *.py file",
        (str(broken), str(out)): "is not a Python program",
        (str(tmp_path / "absent"), str(out)): "absent",
        (str(good), str(out), "--option", "num_perf_trials"): "NAME=VALUE",
        (str(good), str(out), "--option", "num_perf_trials=-3"): "num_perf_trials",
        (str(good), str(out), "--option", "colour=red"): "colour",
    }
    for arguments, why in cases.items():
        assert dataset.main(arguments) == 2
        said = capsys.readouterr()
        assert why in said.err
        assert not said.out
    assert not out.exists()
