"""`kerneldyno rollout`: a model writes kernels over several turns, and each turn is rewarded."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerneldyno.cli.common import (
    INTERRUPTED,
    NO_VERDICT,
    UNREACHABLE,
    Json,
    Service,
    UsageError,
    fail,
    print_json,
    reporting,
    stderr,
    stdout,
)
from kerneldyno.cli.training import RequestFields, Reward, json_option, needing, request_fields, reward_of
from kerneldyno.cli.trajectories import report_tables
from kerneldyno.client.errors import KernelDynoError, UnavailableError
from kerneldyno.rpc import installing
from kerneldyno.rpc.output_files import OutputLock, OutputLockedError

if TYPE_CHECKING:  # these need the extra
    from kerneldyno.rollout.config import RolloutConfig
    from kerneldyno.rollout.endpoint import Endpoint, Sampling
    from kerneldyno.rollout.problems import Problem
    from kerneldyno.rollout.runner import Counts, Runner

#: Seconds between two lines of progress in a log (not a terminal).
_LOG_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ProblemOptions:
    """Which problems to solve."""

    problems: Annotated[
        Path, typer.Argument(metavar="PROBLEMS", help="Folder of references, one .py file, .jsonl or .parquet rows.")
    ]
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first problems, this many.")] = None
    entry_point: Annotated[str, typer.Option("--entry-point", help="Class of the references.")] = "Model"

    def load(self) -> Sequence[Problem]:
        """Read the problems.

        Raises:
            ProblemError: there are none, or one is malformed.
            OSError: they cannot be read.
        """
        from kerneldyno.rollout.problems import load

        return load(self.problems, entry_point=self.entry_point)[: self.limit]


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The model, and how to reach it."""

    model: Annotated[str, typer.Option("--model", help="The model's name at the endpoint.")] = ""
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="OpenAI-compatible endpoint, up to its version.")
    ] = "http://127.0.0.1:8000/v1"
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", metavar="NAME", help="Environment variable that holds the endpoint's key.")
    ] = ""
    endpoint_timeout: Annotated[
        float, typer.Option("--endpoint-timeout", min=0.1, help="Limit of one attempt, in seconds.")
    ] = 600.0
    endpoint_retries: Annotated[int, typer.Option("--endpoint-retries", min=0, max=100)] = 5

    def open(self, connections: int) -> Endpoint:
        """Make the endpoint, for at most `connections` requests at once.

        Raises:
            UsageError: the URL or the key cannot be used.
        """
        from kerneldyno.rollout.endpoint import Endpoint

        try:
            return Endpoint(
                self.base_url,
                self.model,
                key=self._key(),
                timeout=self.endpoint_timeout,
                retries=self.endpoint_retries,
                connections=connections,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error

    def _key(self) -> str:
        name = self.api_key_env
        if not name:
            return ""
        key = os.environ.get(name, "").strip()
        if not key:
            raise UsageError(f"--api-key-env {name}: there is no such variable, or it is empty")
        if not key.isascii() or not key.isprintable():
            raise UsageError(f"--api-key-env {name}: its value has characters that an HTTP header cannot hold")
        return key


@dataclass(frozen=True, slots=True)
class EpisodeOptions:
    """How many episodes and turns, and how they are rewarded."""

    samples: Annotated[int, typer.Option("--samples", min=1, max=1_000_000, help="Episodes of each problem.")] = 1
    turns: Annotated[int, typer.Option("--turns", min=1, max=1000, help="Turns of each episode.")] = 3
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Episodes at once.")] = 32
    reward: Reward = "drkernel"
    request: RequestFields = None


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """What the prompts of later turns contain."""

    strategy: Annotated[
        str, typer.Option("--strategy", help="Earlier turns in a prompt: all, last, top or window.")
    ] = "all"
    window: Annotated[
        int, typer.Option("--window", min=1, help="Number of earlier turns in a prompt; ignored for all.")
    ] = 4
    rank_by: Annotated[
        str, typer.Option("--rank-by", help="Order of turns for top and window: reward, speedup or coverage.")
    ] = "reward"
    data_set_prompts: Annotated[
        bool, typer.Option("--data-set-prompts", help="Use the data set's own prompts if it has any.")
    ] = False


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How answers are sampled."""

    temperature: Annotated[float, typer.Option("--temperature", min=0.0, max=10.0)] = 1.0
    top_p: Annotated[float, typer.Option("--top-p", min=0.0, max=1.0)] = 1.0
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer.")] = 8192
    seed: Annotated[
        int | None, typer.Option("--seed", help="The seed of each generation is derived from this one.")
    ] = None
    extra_body: Annotated[
        str | None,
        typer.Option("--extra-body", metavar="JSON", help="Other fields of each request: '{\"top_k\": 20}'."),
    ] = None

    def sampling(self) -> Sampling:
        """Return the settings for the endpoint.

        Raises:
            UsageError: --extra-body is not a JSON object, or has a field that may not be set.
        """
        from kerneldyno.rollout.endpoint import Sampling, SamplingError

        extra = json_option(self.extra_body, "--extra-body")
        try:
            return Sampling(self.temperature, self.top_p, self.max_tokens, self.seed, extra)
        except SamplingError as error:
            raise UsageError(str(error)) from error


def rollout(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="RUN.jsonl", help="Trajectories; an existing file is continued."),
    ] = None,
    *,
    problems: ProblemOptions,
    endpoint: EndpointOptions,
    episodes: EpisodeOptions,
    prompts: PromptOptions,
    sampling: SamplingOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the first prompt, and do nothing.")] = False,
    service: Service,
    as_json: Json = False,
) -> None:
    """Have a model solve PROBLEMS. Run it again to continue where it stopped."""
    with reporting(), needing("rollout"):
        config = _config(endpoint.model, problems, episodes, prompts, sampling)
        if dry_run:
            _show_first_prompt(config, as_json)
            return
        if not endpoint.model or output is None:
            raise UsageError("give --model NAME and --output RUN.jsonl (or --dry-run, to see the first prompt)")
        if output.suffix == ".png":
            raise UsageError(f"--output {output}: the plot is written there; give {output.with_suffix('.jsonl')}")
        opened = endpoint.open(episodes.concurrency)
        with _locked(output):
            with service.open() as target:
                runner = _run(config, output, episodes.concurrency, opened, target)
            _report(output, runner, as_json)


def _config(
    model: str,
    problems: ProblemOptions,
    episodes: EpisodeOptions,
    prompts: PromptOptions,
    sampling: SamplingOptions,
) -> RolloutConfig:
    """Return the configuration of the run.

    Raises:
        UsageError: an option cannot be used.
    """
    from kerneldyno.rollout.config import RolloutConfig
    from kerneldyno.rollout.problems import ProblemError
    from kerneldyno.training.errors import TrainingError

    try:
        return RolloutConfig(
            model=model,
            problems=problems.load(),
            reward=reward_of(episodes.reward),
            samples=episodes.samples,
            turns=episodes.turns,
            sampling=sampling.sampling(),
            options=request_fields(episodes.request),
            strategy=prompts.strategy,
            window=prompts.window,
            rank_by=prompts.rank_by,
            data_set_prompts=prompts.data_set_prompts,
        )
    except (ProblemError, TrainingError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{error.filename or problems.problems}: {error.strerror or error}") from error


def _show_first_prompt(config: RolloutConfig, as_json: bool) -> None:
    from kerneldyno.rollout import prompts

    first = prompts.first_messages(config.problems[0], config.backend, from_data_set=config.data_set_prompts)
    print_json(first) if as_json else print(prompts.as_text(first))


def _locked(output: Path) -> OutputLock:
    """Lock the trajectories, and the files beside them, against other runs until the lock's block ends."""
    if output.exists() and not output.is_file():
        raise UsageError(f"{output} is not a regular file; a run that continues must read it again")
    try:
        return OutputLock(output)
    except OutputLockedError as error:
        raise UsageError(f"{error}; wait for it, or give another --output") from error
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error


def _run(config: RolloutConfig, output: Path, concurrency: int, endpoint: Endpoint, address: str) -> Runner:
    """Run to the end, or end the command with an error that says how to continue."""
    from kerneldyno.rewards.trajectories import TrajectoryFileError
    from kerneldyno.rollout.config import OtherConfigError
    from kerneldyno.rollout.endpoint import EndpointError
    from kerneldyno.rollout.runner import Runner

    again = f"what is done is in {output}, run the same command to go on"
    try:
        progress = _Progress()
        runner = Runner(config, output, concurrency=concurrency, changed=lambda: progress.show(runner.counts))

        async def run() -> None:
            async with endpoint:
                await runner.run(endpoint, address)

        with progress.shown(runner.counts):
            asyncio.run(run())
    except (OtherConfigError, TrajectoryFileError) as error:
        raise UsageError(
            f"{output}: {error}; give another --output, or the options that it was started with"
        ) from error
    except OSError as error:
        raise UsageError(f"{error.filename or output}: {error.strerror or error}") from error
    except EndpointError as error:
        fail(f"{error}; {again}", UNREACHABLE)
    except UnavailableError as error:
        raise UnavailableError(f"{error}; {again}") from error
    except KernelDynoError as error:
        fail(f"{error}; {again}", NO_VERDICT)
    except KeyboardInterrupt:
        fail(f"interrupted; {again}", INTERRUPTED)
    return runner


def _report(output: Path, runner: Runner, as_json: bool) -> None:
    """Print the report, write it beside the trajectories, and list what is missing."""
    from kerneldyno.rollout.plot import plot
    from kerneldyno.rollout.recorded import light_episodes
    from kerneldyno.rollout.report import report

    found = report(light_episodes(output))
    figures, picture = output.with_suffix(".report.json"), output.with_suffix(".png")
    drawn = False
    try:
        figures.write_text(json.dumps(found.to_json(), indent=2) + "\n", encoding="utf-8")
        if found.turns:
            plot(found, picture, title=runner.config.model)
            drawn = True
    except ModuleNotFoundError as error:  # a missing plot must not fail a long run
        print(f"kerneldyno: no plot without {error.name}: {installing.command('rollout')}", file=sys.stderr)
    except OSError as error:
        raise UsageError(f"the report beside {output} cannot be written: {error.strerror or error}") from error
    if as_json:
        print_json({**found.to_json(), "trajectories": str(output)})
    else:
        for table in report_tables(found):
            stdout().print(table)
        print(f"trajectories {output}  report {figures}" + (f"  plot {picture}" if drawn else ""))
    counts = runner.counts
    for problem, why in counts.broken.items():
        print(f"kerneldyno: {problem} cannot be evaluated; fix it or leave it out: {why}", file=sys.stderr)
    if unfinished := counts.episodes - counts.finished:
        fail(
            f"{unfinished} of {counts.episodes} episodes are not finished, because a reward is missing "
            f"({counts.first_loss}); run the same command to continue them",
            NO_VERDICT,
        )


class _Progress:
    """A line with the progress of a run: rewritten in place in a terminal, a new one now and then in a log."""

    def __init__(self) -> None:
        self._status: Any = None
        self._logged = time.monotonic()

    @contextmanager
    def shown(self, counts: Counts) -> Iterator[None]:
        """Show the line until the block ends."""
        console = stderr()
        if not console.is_terminal:
            yield
            return
        with console.status(progress_line(counts)) as self._status:
            yield

    def show(self, counts: Counts) -> None:
        """Update the line with new counts."""
        if self._status is not None:
            self._status.update(progress_line(counts))
        elif time.monotonic() - self._logged > _LOG_SECONDS:
            self._logged = time.monotonic()
            print(progress_line(counts), file=sys.stderr, flush=True)


def progress_line(counts: Counts) -> str:
    """Return the progress of a run in one line."""
    share = f", {counts.correct / counts.turns:.0%} of them right" if counts.turns else ""
    parts = [f"{counts.finished}/{counts.episodes} episodes", f"{counts.turns} turns{share}"]
    more = (
        ("failed generations", counts.failed),
        ("without reward", counts.without_reward),
        ("requests repeated", counts.retried),
    )
    return ", ".join(parts + [f"{number} {name}" for name, number in more if number])
