"""The evaluation pipeline: where the time of an attempt goes, and what holds it up."""

from __future__ import annotations

from .board import Query, board, lines, number
from .colours import OUTCOMES, STAGES
from .promql import WINDOW, evaluator, mean, over, per_minute, quantile, rate, scheduler, share, time_on_a_node

_STAGE = evaluator("kerneldyno_stage_seconds")
_STAGE_SUM = evaluator("kerneldyno_stage_seconds_sum")
_LANE_SUM = evaluator("kerneldyno_stage_seconds_sum", 'stage!="building"')
_ATTEMPTS = evaluator("kerneldyno_attempts_total")
_BUSY = evaluator("kerneldyno_device_busy_seconds_total")
_HITS = evaluator("kerneldyno_reference_cache_hits_total")
_MISSES = evaluator("kerneldyno_reference_cache_misses_total")
_CLOCKS = evaluator("kerneldyno_timings_total")
_LEASE = evaluator("kerneldyno_timing_lease_seconds")
_BUILDS = evaluator("kerneldyno_builds_total")
_BUILDERS = evaluator("kerneldyno_builders")
_RUNNING_BUILDS = evaluator("kerneldyno_running_builds")

SUMMARY = [
    number(
        "Wait, mean",
        "From acceptance to an attempt. Long waits with lanes free are a matter of placing; with all lanes taken, of size.",
        "s",
        Query(mean(scheduler("kerneldyno_queue_seconds"))),
    ),
    number(
        "On a node, mean",
        "From a job's last placing to its result.",
        "s",
        Query(time_on_a_node()),
    ),
    number(
        "Attempts a minute",
        "Attempts that nodes finished. Fewer than verdicts where earlier results answered.",
        "none",
        Query(per_minute(_ATTEMPTS)),
    ),
    number(
        "Timing lease in use",
        "Share of the time in which a device was timing a candidate, mean of all devices. Only one candidate of a device is "
        "timed at a time: near 100 % the lease is the limit, and more lanes do not help.",
        "percentunit",
        Query(f"avg(rate({_BUSY}{WINDOW}))"),
    ),
    number(
        "Problems found built",
        "Share of attempts whose reference was hot. Building one runs the reference, in fp64 too.",
        "percentunit",
        Query(over(rate(_HITS), f"({rate(_HITS)} + {rate(_MISSES)})")),
    ),
    number(
        "Answered without a run",
        "Share of evaluations that an earlier result, or a run of the same work under way, answered.",
        "percentunit",
        Query(share(scheduler("kerneldyno_deduplicated_total"), scheduler("kerneldyno_outcomes_total"))),
    ),
]

TIME = [
    lines(
        "Mean time of an attempt, by stage",
        "What an attempt costs on its node, stage by stage. `awaiting_lease` is time in which it only waits for "
        "the device's timing lease, `awaiting_memory` for memory that others hold, and `building` compiles native code "
        "before the attempt has a lane.",
        "s",
        Query(share(_STAGE_SUM, _ATTEMPTS, "stage"), "{{stage}}"),
        stacked=True,
        colours=STAGES,
    ),
    lines(
        "Time on nodes, by outcome",
        "Lane-seconds a second that go into attempts of each outcome: what wrong and failing candidates cost.",
        "none",
        Query(rate(_LANE_SUM, "outcome"), "{{outcome}}"),
        stacked=True,
        colours=OUTCOMES,
    ),
    lines(
        "Longest stages, p95",
        "95 of 100 attempts were through with the stage in this time. Limits of each stage are in the request.",
        "s",
        Query(quantile(0.95, _STAGE, "stage"), "{{stage}}"),
        colours=STAGES,
    ),
    lines(
        "Attempts now, by stage",
        "What occupies the lanes. A band of `awaiting_lease` is the timing lease being the limit; one of `preparing`, "
        "references or runners that are not ready; one of `awaiting_memory`, problems that do not fit beside each other. "
        "Attempts that are `building` occupy no lane.",
        "none",
        Query(f"sum by (stage) ({evaluator('kerneldyno_running_attempts')})", "{{stage}}"),
        Query(f"sum({evaluator('kerneldyno_waiting_attempts')})", "wait on the node for a lane"),
        Query(f"sum({_RUNNING_BUILDS})", "building"),
        stacked=True,
        colours=STAGES,
    ),
]

BUILDS = [
    lines(
        "Builds a minute",
        "Libraries of native code. `cached` ones were not compiled again. `full` ones needed all of PyTorch's headers, and "
        "take longer than `lean` ones. `failed` ones are their candidates' doing, unless every build of a node fails.",
        "none",
        Query(per_minute(_BUILDS, "how"), "{{how}}"),
        stacked=True,
        width=6,
    ),
    lines(
        "Duration of a build",
        "Builds that ran, all their compilers together. Cached ones are not in it.",
        "s",
        *(Query(quantile(rank, evaluator("kerneldyno_build_seconds")), f"p{rank * 100:g}") for rank in (0.5, 0.95)),
        width=6,
    ),
    lines(
        "Builders in use",
        "Candidates that are being built, and how many may be at once. At the limit for long while lanes are free, builds "
        "are what holds work up: raise `--builders` where processors are idle.",
        "none",
        Query(f"sum({_RUNNING_BUILDS})", "running"),
        Query(f"sum({_BUILDERS})", "limit"),
        colours={"limit": "red"},
        width=6,
    ),
    lines(
        "Build cache",
        "Size of the build caches, by node. Its limit is `--build-cache-bytes`; libraries that were used least recently are "
        "dropped first.",
        "bytes",
        Query(evaluator("kerneldyno_build_cache_bytes"), "{{instance}}"),
        width=6,
    ),
]

RUNNERS = [
    lines(
        "Runners",
        "Spare ones are warm and wait for a candidate. At 0 while attempts run, candidates wait for their runner.",
        "none",
        Query(f"sum({evaluator('kerneldyno_spare_runners')})", "spare"),
        Query(f"sum({evaluator('kerneldyno_starting_runners')})", "starting"),
        Query(f"sum({evaluator('kerneldyno_taken_runners')})", "taken"),
        width=8,
    ),
    lines(
        "Ends of runners a minute",
        "`killed` are past a limit or cancelled, `signal` crashed or were killed for their memory, `error` ended otherwise. "
        "Each is a candidate's doing unless its attempt says otherwise.",
        "none",
        Query(per_minute(evaluator("kerneldyno_runner_exits_total"), "how"), "{{how}}"),
        stacked=True,
        width=8,
    ),
    lines(
        "Reference cache",
        "Problems that were built already and those that had to be, a minute.",
        "none",
        Query(per_minute(_HITS), "hot"),
        Query(per_minute(_MISSES), "built"),
        Query(f"sum({evaluator('kerneldyno_reference_cache_problems')})", "kept now"),
        width=8,
    ),
]

TIMING = [
    lines(
        "Timing lease in use, by device",
        "Share of the time in which the device was timing.",
        "percentunit",
        Query(f"rate({_BUSY}{WINDOW})", "{{instance}} {{device}}"),
        most=1,
    ),
    lines(
        "A device held for one timing",
        "How long the device was held to time one candidate and its reference. Nobody else is timed meanwhile; a wider "
        "`timing_precision` shortens it.",
        "s",
        *(Query(quantile(rank, _LEASE), f"p{rank * 100:g}") for rank in (0.5, 0.95)),
    ),
    lines(
        "Whose clock counted",
        "Share of timings by the clock of the device time. `judge` counts where device times cannot be believed; a rise on "
        "GPUs deserves a look at the findings. `each_call` is usual on a CPU; on a GPU calls could not be queued ahead.",
        "percentunit",
        Query(share(_CLOCKS, _CLOCKS, "clock"), "{{clock}}"),
        stacked=True,
    ),
    lines(
        "Mean attempts of a job, retries",
        "1 where nothing is lost. The rest is work done twice.",
        "none",
        Query(mean(scheduler("kerneldyno_evaluation_attempts")), "attempts of a job"),
        Query(share(scheduler("kerneldyno_retries_total"), scheduler("kerneldyno_placements_total")), "share retried"),
    ),
]

BOARD = board(
    "kerneldyno-pipeline",
    "KernelDyno / Evaluation pipeline",
    "Where the time of an evaluation goes: waiting, preparing, compiling, checking, waiting for the timing lease, timing.",
    [
        ("From acceptance to verdict", SUMMARY),
        ("Stages", TIME),
        ("Builds of native code", BUILDS),
        ("Runners and references", RUNNERS),
        ("Timing", TIMING),
    ],
)
