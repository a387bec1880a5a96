"""Train the tiny policy through real rewards, in several settings and seeds, and write the results to a file.

    python examples/tiny_rl/train.py --preset quick      CPU: one problem, checks off and on, one seed; two minutes
    python examples/tiny_rl/train.py --preset small      CPU: minutes for verdicts, minutes for learning
    python examples/tiny_rl/train.py --preset h200       a GPU, larger problems, coverage by the profiler
    python examples/tiny_rl/train.py ... --seconds 500   stop after this time; the same command with --resume continues
    python examples/tiny_rl/train.py ... --replay results.json   train on verdicts of an earlier run, without services
    python examples/tiny_rl/train.py ... --truth results.json --anew   judge every turn, but no program before training

Every turn goes through the reward stream of a real scheduler with a real evaluator. There are few programs, so the
scheduler judges each once and then answers from its store: a verdict is one draw of a noisy clock, and does not change
later. Figures come from the strict judge (with its checks on), whichever judge rewarded the policy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grammar
import judging
import replaying
import torch
import warming
from judging import Judging, Key, Paid, Payer, Written
from learner import ResumeError, Run, Setting, cold_start
from problem import PRESETS, Problem
from replaying import Recorded, RecordError

from kerneldyno.client import AsyncClient, LocalServices
from kerneldyno.rewards.trajectories import TrajectoryFileError, TrajectoryWriter

SETTINGS = (
    Setting("trusting, TRLOO", checks="trusting"),
    Setting("checks off, TRLOO", checks="off"),
    Setting("checks on, GRPO", estimator="grpo"),
    Setting("checks on, TRLOO"),
    Setting("checks on, TRLOO + PR", pr=True),
    Setting("checks on, TRLOO + PR + PRS", pr=True, prs=True),
    Setting("checks on, GRPO, N = 2, 4 or 16", estimator="grpo", samples=(2, 4, 16)),
    Setting("checks on, TRLOO, N = 2, 4 or 16", samples=(2, 4, 16)),
    # A policy gains from later turns only while it still explores; the entropy bonus keeps it exploring.
    Setting("checks on, TRLOO + entropy bonus", entropy=0.5, stretch=5),
)


#: A run is saved after this many updates.
SAVED_EVERY = 5
#: Defaults of each preset: number of seeds, number of updates, names of settings (none means all).
DEFAULTS = {"quick": (1, 40, ("checks off, TRLOO", "checks on, TRLOO")), "small": (5, 60, ()), "h200": (5, 60, ())}


def main() -> int:
    """Run the experiment; return the exit status."""
    parser = argparse.ArgumentParser(description="Train a tiny policy through the real reward stream.")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="small")
    parser.add_argument("--seeds", type=int, help="default: 5, of quick 1")
    parser.add_argument("--updates", type=int, help="default: 60, of quick 40")
    parser.add_argument("--settings", nargs="*", help="parts of settings' names (default: all, of quick two)")
    parser.add_argument("--masked", action="store_true", help="let the policy write only well-formed programs")
    parser.add_argument(
        "--oversample",
        type=float,
        default=1.0,
        help="sample this multiple of the groups; drop those with equal rewards",
    )
    parser.add_argument(
        "--adaptive", action="store_true", help="sample each problem until it has both kinds of episodes"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE.jsonl", help="append turns judged with the checks on to this file"
    )
    parser.add_argument(
        "--warm-from",
        type=Path,
        metavar="FILE.jsonl",
        help="first imitate the correct turns of a file that --record wrote",
    )
    parser.add_argument("--min-reward", type=float, default=0.5, help="least reward of a turn that is imitated")
    parser.add_argument("--min-speedup", type=float, default=0.0, help="least speedup of a turn that is imitated")
    parser.add_argument("--out", type=Path, default=Path("build/tiny_rl"), help="folder for results")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no update after this time")
    parser.add_argument("--resume", action="store_true", help="continue with the runs and verdicts in the folder")
    parser.add_argument(
        "--anew", action="store_true", help="judge every turn, as if the policy never wrote the same twice"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="RESULTS.json", help="start no services; pay by the verdicts of this earlier run"
    )
    parser.add_argument(
        "--truth",
        type=Path,
        metavar="RESULTS.json",
        help="take the strict verdicts of this earlier run as the truth; do not judge every program first",
    )
    options = parser.parse_args()
    seeds, updates, _ = DEFAULTS[options.preset]
    options.seeds, options.updates = options.seeds or seeds, options.updates or updates
    if not 1 <= options.oversample <= 4:
        parser.error(f"--oversample {options.oversample}: give a factor from 1 to 4")
    if options.replay and (options.anew or options.record or options.truth):
        parser.error("--replay has nothing judged; leave out --anew, --record and --truth")
    for earlier in filter(None, (options.replay, options.truth)):
        if earlier.resolve().parent == options.out.resolve():
            parser.error(f"--out {options.out} holds {earlier.name}, which would be overwritten; give another folder")
    if options.adaptive and options.oversample > 1:
        parser.error("--adaptive and --oversample are two ways to find groups that differ; give one of them")
    try:
        examples = (
            warming.read_examples(options.warm_from, min_reward=options.min_reward, min_speedup=options.min_speedup)
            if options.warm_from
            else None
        )
        problems = PRESETS[options.preset]()
        given = replaying.read(options.replay, options.preset, problems) if options.replay else None
        known = replaying.read(options.truth, options.preset, problems)[0] if options.truth else None
        recorder = TrajectoryWriter(options.record) if options.record else None
    except (OSError, ValueError, TrajectoryFileError) as error:
        parser.error(str(error))
    options.out.mkdir(parents=True, exist_ok=True)
    with recorder or nullcontext():
        try:
            if given is None:
                asyncio.run(experiment(options, known, examples, recorder))
            else:
                asyncio.run(replay(options, *given, examples))
        except (ResumeError, RecordError) as error:
            parser.error(str(error))
    return 0


async def experiment(
    options: argparse.Namespace,
    known: Recorded | None = None,
    examples: tuple[torch.Tensor, torch.Tensor] | None = None,
    recorder: TrajectoryWriter | None = None,
) -> None:
    """Judge every program, train every setting with every seed, judge the learned programs again; write results.json.

    With verdicts that are `known` from an earlier run, only programs of the training are judged.
    """
    on_gpu = options.preset == "h200"
    training = Training(options, examples)
    results, kept = training.results, training.kept
    with LocalServices(devices="cuda" if on_gpu else "cpu", store=kept.store) as services:
        async with AsyncClient(services.address) as client:
            judge = Judging(client, profiled=on_gpu)
            truth: Mapping[Key, Paid]
            if known is None:
                truth = await survey(judge, training)
            else:
                judge.claims, truth = known.claims, known.verdicts["on"]
            surveyed = _figures(judge, training.elapsed())
            judge = replace(judge, sent=0, waited=0.0, judged=0, stage_seconds={})
            judge.anew, judge.recorder = options.anew, recorder
            start = training.elapsed()
            await training.learn(judge, truth)
            kept.sessions.append({"survey": surveyed, **_figures(judge, training.elapsed() - start)})
            results["sessions"] = kept.sessions
            training.write()
            judge.recorder, judge.anew = None, False
            if training.has_time():
                results["afresh"] = await afresh(judge, training.problems, results["runs"], truth)
    training.write()


async def replay(
    options: argparse.Namespace,
    given: Recorded,
    earlier: dict[str, Any],
    examples: tuple[torch.Tensor, torch.Tensor] | None,
) -> None:
    """Train as `experiment` does, paid by recorded verdicts; write results.json. Raises RecordError."""
    training = Training(options, examples)
    training.results |= {name: earlier[name] for name in ("verdicts", "claims", "sessions") if name in earlier}
    await training.learn(given, given.verdicts["on"])
    training.write()


class Training:
    """One experiment: its problems, settings, saved state and results. Its time starts when it is created."""

    def __init__(self, options: argparse.Namespace, examples: tuple[torch.Tensor, torch.Tensor] | None = None) -> None:
        torch.set_num_threads(1)
        self._began = time.monotonic()
        self._options, self._examples = options, examples
        self.problems = PRESETS[options.preset]()
        self.settings = [
            replace(each, oversample=options.oversample, adaptive=options.adaptive) for each in chosen(options)
        ]
        self.results: dict[str, Any] = {
            "preset": options.preset,
            "updates": options.updates,
            "masked": options.masked,
            "sources": replaying.fingerprint(self.problems),
            "settings": [asdict(setting) for setting in self.settings],
            "runs": {},
        }
        self.kept = Kept(options.out, self.results, resume=options.resume)

    def elapsed(self) -> float:
        """Return the seconds since the experiment began."""
        return time.monotonic() - self._began

    def has_time(self) -> bool:
        """Return True until `--seconds` are over."""
        seconds: float = self._options.seconds
        return self.elapsed() < seconds

    async def learn(self, judge: Payer, truth: Mapping[Key, Paid]) -> None:
        """Train every setting with every seed, until `--seconds` are over; add the runs to the results."""
        options = self._options
        for setting, seed in ((setting, seed) for setting in self.settings for seed in range(options.seeds)):
            start = cold_start(seed, masked=options.masked)
            if self._examples is not None:
                start = warming.warm(start, *self._examples, seed=seed)
            run = Run(judge, self.problems, truth, setting, seed, start=start)
            self.kept.restore(run)
            updates = options.updates * setting.stretch
            while len(run.history) < updates and self.has_time():
                await run.learn(min(updates, len(run.history) + SAVED_EVERY), self.has_time)
                self.kept.save(run)
            if run.history:
                self.results["runs"].setdefault(setting.name, []).append(run.report())
                self.say(f"{setting.name}, seed {seed}, {len(run.history)} of {updates}: {run.summary()}")

    def write(self) -> None:
        """Write the results."""
        path = self._options.out / "results.json"
        write(path, self.results)
        self.say(f"wrote {path}")

    def say(self, text: str) -> None:
        """Print a line of progress, after the seconds so far."""
        print(f"{self.elapsed():7.1f} s  {text}", flush=True)


def _figures(judge: Judging, seconds: float) -> dict[str, Any]:
    """Return the figures of one part of a session: its turns, its seconds, and its seconds of waiting for rewards.

    `judged` counts the turns that were not answered from the store; `stages` has the seconds of their stages, which
    overlap.
    """
    return {
        "turns": judge.sent,
        "seconds": seconds,
        "waited": judge.waited,
        "judged": judge.judged,
        "stages": dict(judge.stage_seconds),
    }


class Kept:
    """State saved in a folder, so that several short sessions make one curve: runs, verdicts, and figures of sessions.

    Without `resume` the state of an earlier experiment is deleted. Raises ResumeError if it belongs to another one.
    """

    def __init__(self, folder: Path, results: dict[str, Any], *, resume: bool) -> None:
        self._runs, verdicts = folder / "runs", folder / "verdicts.sqlite"
        #: The scheduler's store. It is kept since judging a program again would be another draw of the noisy clock.
        self.store = f"sqlite:{verdicts}"
        self.sessions: list[dict[str, Any]] = []
        self._runs.mkdir(parents=True, exist_ok=True)
        if not resume:
            for path in (*self._runs.glob("*.pt"), *folder.glob(f"{verdicts.name}*")):  # keep other files in the folder
                path.unlink()
        elif (earlier := folder / "results.json").exists():
            found = json.loads(earlier.read_text())
            for name in ("preset", "masked"):
                if found[name] != results[name]:
                    raise ResumeError(f"{earlier} was made with {name}={found[name]!r}; give another --out")
            self.sessions = found.get("sessions", [])

    def restore(self, run: Run) -> None:
        """Restore a run from its last saved state, if there is one."""
        if not (path := self._path(run)).exists():
            return
        try:
            state = torch.load(path, weights_only=True)
        except Exception as error:  # torch and zipfile raise many kinds for a damaged file
            raise ResumeError(f"{path} cannot be read; without it this run begins anew") from error
        run.go_on(state)

    def save(self, run: Run) -> None:
        """Write a run, whole or not at all."""
        part = self._path(run).with_suffix(".part")
        torch.save(run.state(), part)
        part.replace(self._path(run))

    def _path(self, run: Run) -> Path:
        name = "".join(letter if letter.isalnum() else "_" for letter in run.setting.name)
        return self._runs / f"{name}-{run.seed}.pt"


def chosen(options: argparse.Namespace) -> list[Setting]:
    """Return the settings whose names contain one of the given parts; if none is given, those of the preset."""
    if options.settings:
        return [each for each in SETTINGS if any(part in each.name for part in options.settings)]
    names = DEFAULTS[options.preset][2]
    return [each for each in SETTINGS if not names or each.name in names]


async def survey(judge: Judging, training: Training) -> dict[Key, Paid]:
    """Judge every program in every way that the settings need; return the strict verdicts, which count as the truth."""
    settings, results = training.settings, training.results
    trusting = any(setting.checks == "trusting" for setting in settings)
    if trusting or (not judge.profiled and any(setting.pr for setting in settings)):
        judge.claims = judging.believed(training.problems, "cuda" if judge.profiled else "cpu")
        results["claims"] = {"/".join(key): asdict(claim) for key, claim in judge.claims.items()}
        training.say(f"the trusting evaluator has looked at {len(judge.claims)} programs")
    tables = {}
    for checks in sorted({"on", *("off" for setting in settings if setting.checks != "on")}, reverse=True):

        def progress(done: int, of: int, checks: str = checks) -> None:
            training.say(f"checks {checks}: {done} of {of}")

        tables[checks] = await judging.survey(judge, training.problems, checks, progress)
    results["verdicts"] = {
        checks: {"/".join(key): asdict(paid) for key, paid in table.items()} for checks, table in tables.items()
    }
    return tables["on"]


async def afresh(
    judge: Judging, problems: Sequence[Problem], runs: dict[str, list[dict[str, Any]]], truth: Mapping[Key, Paid]
) -> dict[str, Any]:
    """Judge the most frequent final programs of each setting again, strictly and without stored verdicts."""
    by_name = {problem.name: problem for problem in problems}
    wanted = sorted(
        {
            (name, favourites[0][0])
            for reports in runs.values()
            for report in reports
            for name, favourites in report["favourites"].items()
            if favourites and favourites[0][0] != "ill-formed"
        }
    )
    turns = [
        Written(by_name[name], (*words.split(), grammar.END), "afresh", index, 0)
        for index, (name, words) in enumerate(wanted)
    ]
    paid = await replace(judge, salt=f"afresh-{time.time_ns()}").pay(turns)
    return {
        f"{name}/{words}": {"first": asdict(truth[name, words]), "again": asdict(got)}
        for (name, words), got in zip(wanted, paid, strict=True)
    }


def write(path: Path, results: dict[str, Any]) -> None:
    """Write results as JSON, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results))
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
