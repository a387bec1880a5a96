"""Convert problems to rows that verl reads: `python -m kerneldyno.verl.dataset PROBLEMS OUT.parquet`.

PROBLEMS is the same as for `kerneldyno rollout`: a folder of references (KernelBench's own layout), one .py file, or rows
of JSONL or Parquet, also those of other trainers' data sets. A row of the result has

    prompt        one user message (see `kerneldyno.rollout.prompts`), or the data set's own with --keep-prompts
    data_source   the set's name, and "/level<N>" if a level is known: verl groups validation figures by it
    reward_model  {"style": "rule", "ground_truth": the reference, or the problem as JSON text where it has options}
    extra_info    {"index", "problem_id", "level", "entry_point"}
    agent_name    "kernel_agent"; --agent none leaves the column out
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneldyno.rollout import problems, prompts
from kerneldyno.rollout.problems import Problem, ProblemError
from kerneldyno.rpc.jsonio import with_defaults

AGENT = "kernel_agent"
_LEVEL = re.compile(r"level[_ -]?(\d+)", re.IGNORECASE)


def row(
    problem: Problem,
    index: int,
    *,
    source: str,
    options: Mapping[str, Any] | None = None,
    keep_prompt: bool = False,
    agent: str | None = AGENT,
) -> dict[str, Any]:
    """Return a problem as a row of verl's data set.

    Args:
        problem: the problem.
        index: number of the problem in the set.
        source: name of the set.
        options: fields of EvalRequest, for example {"backend": "cuda"}, used where the problem does not set them.
        keep_prompt: use the problem's own prompt if it has one.
        agent: name of the agent loop; None leaves it to the configuration.

    Raises:
        ProblemError: the problem or the options are malformed.
    """
    request = problem.request(options)
    chosen = with_defaults(problem.options, options or {})
    reference = problem.reference_code
    if chosen:
        whole = {"reference_code": reference, "entry_point": problem.entry_point, "options": chosen}
        reference = json.dumps(whole, sort_keys=True)
    found = _LEVEL.search(problem.id)
    level = int(found[1]) if found else 0
    return {
        "data_source": f"{source}/level{level}" if level else source,
        "prompt": prompts.first_messages(problem, request.backend or "triton", from_data_set=keep_prompt),
        "ability": "kernels",
        "reward_model": {"style": "rule", "ground_truth": reference},
        "extra_info": {
            "index": index,
            "problem_id": problem.id,
            "level": level,
            "entry_point": problem.entry_point,
        },
        **({"agent_name": agent} if agent else {}),
    }


def write(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write rows as Parquet and return their number. Needs pyarrow, which verl installs."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist([dict(one) for one in rows])
    pyarrow.parquet.write_table(table, path)
    return int(table.num_rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 0, or 2 for problems or options that cannot be used."""
    given = _parser().parse_args(arguments)
    try:
        options = dict(_option(text) for text in given.option)
        if given.backend:
            options["backend"] = given.backend
        source = given.source or given.problems.stem
        agent = None if given.agent == "none" else given.agent
        rows = [
            row(problem, index, source=source, options=options, keep_prompt=given.keep_prompts, agent=agent)
            for index, problem in enumerate(problems.load(given.problems, entry_point=given.entry_point))
        ]
        count = write(rows, given.out)
    except (ProblemError, OSError) as error:
        print(f"kerneldyno: {error}", file=sys.stderr)
        return 2
    longest = max(sum(len(message["content"]) for message in one["prompt"]) for one in rows)
    print(f"{given.out}: {count} rows; the longest prompt has {longest} characters (about {longest // 3} tokens)")
    return 0


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ProblemError(f"--option {text}: give NAME=VALUE, NAME being a field of EvalRequest")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kerneldyno.verl.dataset", description="Convert problems to rows that verl reads."
    )
    parser.add_argument("problems", type=Path, metavar="PROBLEMS", help="a folder, a .py, .jsonl or .parquet file")
    parser.add_argument("out", type=Path, metavar="OUT.parquet", help="the file to write")
    parser.add_argument("--source", default="", help="name of the set (default: the name of the folder or file)")
    parser.add_argument("--backend", default="", help="language of candidates (default: triton)")
    parser.add_argument("--entry-point", default="Model", help="name of the reference's class (%(default)s)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="a field of EvalRequest for every problem"
    )
    parser.add_argument("--keep-prompts", action="store_true", help="use the data set's own prompts")
    parser.add_argument("--agent", default=AGENT, help="value of the column agent_name, or none (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
