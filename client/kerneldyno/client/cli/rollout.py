"""`kerneldyno rollout`: a model writes kernels over several turns, and each turn is rewarded."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.client.cli.common import (
    INTERRUPTED,
    NO_VERDICT,
    UNREACHABLE,
    Address,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    UsageError,
    fail,
    print_json,
    reporting,
    stderr,
    stdout,
)
from kerneldyno.client.cli.training import RequestFields, Reward, json_option, needing, request_fields, reward_of
from kerneldyno.client.cli.trajectories import report_tables
from kerneldyno.client.errors import KernelDynoError, UnavailableError
from kerneldyno.rpc import installing
from kerneldyno.rpc.output_files import OutputLock, OutputLockedError

if TYPE_CHECKING:  # they need the extra
    from kerneldyno.rollout.config import RolloutConfig
    from kerneldyno.rollout.endpoint import Endpoint
    from kerneldyno.rollout.runner import Counts, Runner

#: How often a log, which is no terminal, gets a line of progress, in seconds.
_LOG_SECONDS = 30.0


def rollout(
    problems: Annotated[
        Path, typer.Argument(metavar="PROBLEMS", help="Folder of references, one .py file, .jsonl or .parquet rows.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="RUN.jsonl", help="Trajectories; a file that exists is gone on with."),
    ] = None,
    model: Annotated[str, typer.Option("--model", help="The model's name at the endpoint.")] = "",
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="OpenAI-compatible endpoint, up to its version.")
    ] = "http://127.0.0.1:8000/v1",
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", metavar="NAME", help="Environment variable that holds the endpoint's key.")
    ] = "",
    samples: Annotated[int, typer.Option("--samples", min=1, max=1_000_000, help="Episodes of each problem.")] = 1,
    turns: Annotated[int, typer.Option("--turns", min=1, max=1000, help="Turns of each episode.")] = 3,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Episodes at once.")] = 32,
    reward: Reward = "drkernel",
    request: RequestFields = None,
    strategy: Annotated[
        str, typer.Option("--strategy", help="Earlier turns in a prompt: all, last, top or window.")
    ] = "all",
    window: Annotated[int, typer.Option("--window", min=1, help="How many of them; all shows all.")] = 4,
    rank_by: Annotated[
        str, typer.Option("--rank-by", help="What top and window go by: reward, speedup or coverage.")
    ] = "reward",
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, max=10.0)] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", min=0.0, max=1.0)] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer.")] = 8192,
    seed: Annotated[int | None, typer.Option("--seed", help="A seed for each generation follows from it.")] = None,
    extra_body: Annotated[
        str | None,
        typer.Option("--extra-body", metavar="JSON", help="Other fields of each request: '{\"top_k\": 20}'."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many problems.")] = None,
    entry_point: Annotated[str, typer.Option("--entry-point", help="Class of the references.")] = "Model",
    data_set_prompts: Annotated[
        bool, typer.Option("--data-set-prompts", help="Use the data set's own prompts where it has some.")
    ] = False,
    endpoint_timeout: Annotated[float, typer.Option("--endpoint-timeout", min=0.1, help="Of one try, in s.")] = 600.0,
    endpoint_retries: Annotated[int, typer.Option("--endpoint-retries", min=0, max=100)] = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the first prompt, and do nothing.")] = False,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Have a model solve PROBLEMS. Run it again to go on where it stopped."""
    with reporting(), needing("rollout"):
        from kerneldyno.rollout import prompts
        from kerneldyno.rollout.config import RolloutConfig
        from kerneldyno.rollout.endpoint import Endpoint, Sampling, SamplingError
        from kerneldyno.rollout.problems import ProblemError, load
        from kerneldyno.training.errors import TrainingError

        try:
            config = RolloutConfig(
                model=model,
                problems=load(problems, entry_point=entry_point)[:limit],
                reward=reward_of(reward),
                samples=samples,
                turns=turns,
                sampling=Sampling(temperature, top_p, max_tokens, seed, json_option(extra_body, "--extra-body")),
                options=request_fields(request),
                strategy=strategy,
                window=window,
                rank_by=rank_by,
                data_set_prompts=data_set_prompts,
            )
        except (ProblemError, TrainingError, SamplingError) as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(f"{error.filename or problems}: {error.strerror or error}") from error
        if dry_run:
            first = prompts.first_messages(config.problems[0], config.backend, from_data_set=data_set_prompts)
            print_json(first) if as_json else print(prompts.as_text(first))
            return
        if not model or output is None:
            raise UsageError("give --model NAME and --output RUN.jsonl (or --dry-run, to see the first prompt)")
        if output.suffix == ".png":
            raise UsageError(f"--output {output}: there the plot goes; give for example {output.with_suffix('.jsonl')}")
        key = _key(api_key_env)
        try:
            endpoint = Endpoint(
                base_url, model, key=key, timeout=endpoint_timeout, retries=endpoint_retries, connections=concurrency
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        with _locked(output):
            with Service(address, local, devices, sandbox, lanes).open() as target:
                runner = _run(config, output, concurrency, endpoint, target)
            _report(output, runner, as_json)


def _locked(output: Path) -> OutputLock:
    """Keep other runs from the trajectories, and from what is written beside them, until the lock's block ends."""
    if output.exists() and not output.is_file():
        raise UsageError(f"{output} is no plain file, and a run that goes on has to be read again")
    try:
        return OutputLock(output)
    except OutputLockedError as error:
        raise UsageError(f"{error}; wait for it, or give another --output") from error
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error


def _key(name: str) -> str:
    if not name:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise UsageError(f"--api-key-env {name}: there is no such variable, or it is empty")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"--api-key-env {name}: its value is no key; it has characters that no HTTP header holds")
    return key


def _run(config: RolloutConfig, output: Path, concurrency: int, endpoint: Endpoint, address: str) -> Runner:
    """Run to the end, or say why not."""
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
        raise UsageError(f"{output}: {error}; give another --output, or the options that it was begun with") from error
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
    """Print the report, write it beside the trajectories, and say what is missing."""
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
    except ModuleNotFoundError as error:  # after a long run this is no reason to fail
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
        print(f"kerneldyno: {problem} cannot be judged, mend it or leave it out: {why}", file=sys.stderr)
    if unfinished := counts.episodes - counts.finished:
        fail(
            f"{unfinished} of {counts.episodes} episodes are not finished, for want of a reward "
            f"({counts.first_loss}); run the same command to go on with them",
            NO_VERDICT,
        )


class _Progress:
    """One line that tells how a run stands: rewritten in a terminal, now and then a new one in a log."""

    def __init__(self) -> None:
        self._status: Any = None
        self._logged = time.monotonic()

    @contextmanager
    def shown(self, counts: Counts) -> Iterator[None]:
        """Show it while the block lasts."""
        console = stderr()
        if not console.is_terminal:
            yield
            return
        with console.status(progress_line(counts)) as self._status:
            yield

    def show(self, counts: Counts) -> None:
        """Take note of new counts."""
        if self._status is not None:
            self._status.update(progress_line(counts))
        elif time.monotonic() - self._logged > _LOG_SECONDS:
            self._logged = time.monotonic()
            print(progress_line(counts), file=sys.stderr, flush=True)


def progress_line(counts: Counts) -> str:
    """How a run stands, in one line."""
    share = f", {counts.correct / counts.turns:.0%} of them right" if counts.turns else ""
    parts = [f"{counts.finished}/{counts.episodes} episodes", f"{counts.turns} turns{share}"]
    more = (
        ("failed generations", counts.failed),
        ("without reward", counts.without_reward),
        ("requests repeated", counts.retried),
    )
    return ", ".join(parts + [f"{number} {name}" for name, number in more if number])
