"""What a person who trains looks at: rewards, the mix of verdicts, cheating, and how long turns take."""

from __future__ import annotations

from .board import Query, board, heat, lines, number
from .colours import OUTCOMES
from .promql import evaluator, gateway, growth, mean, over, per_minute, quantile, rate, scheduler, share, time_on_a_node

_TURNS = scheduler("kerneldyno_turns_total")
_REWARD = scheduler("kerneldyno_reward")
_GAINED = scheduler("kerneldyno_reward_points_total", sign="positive")
_LOST = scheduler("kerneldyno_reward_points_total", sign="negative")
_PAID = scheduler("kerneldyno_reward_count")
_UNPAID = scheduler("kerneldyno_turns_without_reward_total")
_NO_CODE = scheduler("kerneldyno_extraction_failures_total")
_SPEEDUP = evaluator("kerneldyno_speedup")
_END_TO_END = evaluator("kerneldyno_end_to_end_speedup")
# The histogram of rewards has no sum, since there are rewards below 0.
_MEAN_REWARD = over(f"({rate(_GAINED)} - {rate(_LOST)})", rate(_PAID))


def _turns(outcome: str) -> str:
    return scheduler("kerneldyno_turns_total", outcome=outcome)


_TURNS_A_MINUTE = per_minute(_TURNS)
_REJECTED = share(_turns("REJECTED"), _TURNS)

SUMMARY = [
    number("Turns a minute", "Turns of StreamRewards that were answered.", "none", Query(_TURNS_A_MINUTE)),
    number(
        "Mean reward",
        "Of the turns that got one, whatever their RewardSpec: do not compare runs with other specs.",
        "none",
        Query(_MEAN_REWARD),
    ),
    number("Right", "Share of turns that are CORRECT.", "percentunit", Query(share(_turns("CORRECT"), _TURNS))),
    number(
        "Rejected for cheating",
        "Share of turns that are REJECTED: findings decided the outcome.",
        "percentunit",
        Query(_REJECTED),
        steps=((None, "green"), (0.05, "orange"), (0.2, "red")),
    ),
    number(
        "Without code",
        "Share of turns in whose response no code was found. High at the start of a training, or when answers are cut off.",
        "percentunit",
        Query(share(_NO_CODE, _TURNS)),
    ),
    number(
        "Without a reward",
        "Share of turns that got none: infrastructure failed, or the reference did. These are not the policy's doing.",
        "percentunit",
        Query(share(_UNPAID, _TURNS)),
        steps=((None, "green"), (0.01, "orange"), (0.05, "red")),
    ),
]

REWARDS = [
    lines(
        "Mean reward over time",
        "Of the turns that got one. A rise with a falling share of right answers is a policy that has found "
        "something else to do.",
        "none",
        Query(_MEAN_REWARD, "mean reward"),
    ),
    heat(
        "Rewards",
        "How many turns got which reward. The band of failures and the band of right answers are to part, and the "
        "latter to rise.",
        "none",
        Query(growth(_REWARD), "{{le}}"),
    ),
    lines(
        "Mix of verdicts",
        "Share of turns by outcome. A response without code is INVALID.",
        "percentunit",
        Query(share(_TURNS, _TURNS, "outcome"), "{{outcome}}"),
        stacked=True,
        colours=OUTCOMES,
        most=1,
    ),
    lines(
        "Speedups of right candidates",
        "Quantiles of the speedup over the reference by device time, and its median by end-to-end time, of all attempts "
        "that were right and timed, turns or not, whichever of the two is paid.",
        "none",
        *(Query(quantile(rank, _SPEEDUP), f"device p{rank * 100:g}") for rank in (0.1, 0.5, 0.9)),
        Query(quantile(0.5, _END_TO_END), "end to end p50"),
    ),
]

CHEATING = [
    lines(
        "Cheating: what decided a rejection",
        "Findings that rejected an attempt, a minute, by their id in docs/threat-model.md. A line that appears and rises is "
        "a policy learning that trick: read the candidates (`kerneldyno evaluations --outcome REJECTED`).",
        "none",
        Query(per_minute(evaluator("kerneldyno_findings_total", severity="reject"), "finding"), "{{finding}}"),
        stacked=True,
    ),
    lines(
        "Share of turns rejected",
        "Of all turns, and of those whose outputs were right: what part of the apparent progress was cheating.",
        "percentunit",
        Query(_REJECTED, "of all turns"),
        Query(
            share(_turns("REJECTED"), scheduler("kerneldyno_turns_total", 'outcome=~"CORRECT|REJECTED"')),
            "of right and rejected ones",
        ),
        colours={"of all turns": "purple", "of right and rejected ones": "dark-purple"},
    ),
    lines(
        "Other findings a minute",
        "Labels and warnings: what was noticed and decided nothing, such as arithmetic coarser than the reference's (S23) "
        "or a problem that a shrug would pass (D06).",
        "none",
        Query(
            per_minute(evaluator("kerneldyno_findings_total", 'severity!="reject"'), "finding", "severity"),
            "{{finding}} {{severity}}",
        ),
    ),
    lines(
        "Second measurements",
        "Share of turns whose speedup was above `remeasure_above` and was measured again; the lower one counts.",
        "percentunit",
        Query(share(scheduler("kerneldyno_remeasurements_total"), _TURNS), "measured again"),
    ),
]

LATENCY = [
    lines(
        "Turn latency",
        "From a turn's arrival to its answer, second measurements included: what a rollout waits for.",
        "s",
        *(
            Query(quantile(rank, scheduler("kerneldyno_turn_seconds")), f"p{rank * 100:g}")
            for rank in (0.5, 0.95, 0.99)
        ),
    ),
    lines(
        "Where a turn's time goes",
        "Mean wait for an attempt of turns, and mean time of an evaluation on its node. The first grows when the rollout "
        "asks for more than the fleet has.",
        "s",
        Query(mean(scheduler("kerneldyno_queue_seconds", client_kind="rewards")), "waiting"),
        Query(time_on_a_node(), "on a node"),
        stacked=True,
    ),
    lines(
        "Turns answered",
        "Turns a minute: all, those without a reward, and those without code.",
        "none",
        Query(_TURNS_A_MINUTE, "all"),
        Query(per_minute(_UNPAID), "without a reward"),
        Query(per_minute(_NO_CODE), "without code"),
    ),
    lines(
        "Turns that wait",
        "Jobs of turns without an attempt, and the age of the oldest, in seconds.",
        "none",
        Query(f"sum({scheduler('kerneldyno_queue_depth', client_kind='rewards')})", "waiting jobs"),
        Query(f"max({scheduler('kerneldyno_queue_oldest_seconds', client_kind='rewards')})", "age of the oldest (s)"),
    ),
]

GATEWAY = [
    lines(
        "Gateway: answers a minute",
        "By status. 503 is the scheduler being away or full, 500 a fault of the gateway's own; both cost a "
        "trainer the sample.",
        "none",
        Query(per_minute(gateway("kerneldyno_gateway_requests_total"), "status"), "{{status}}"),
        stacked=True,
        colours={
            "200": "green",
            "400": "yellow",
            "404": "orange",
            "422": "dark-yellow",
            "500": "red",
            "503": "dark-red",
        },
        width=8,
    ),
    lines(
        "Gateway: time to answer, p95",
        "By route. `/rm`, `/get_reward` and `/step` answer when the verdict is there.",
        "s",
        Query(quantile(0.95, gateway("kerneldyno_gateway_request_seconds"), "route"), "{{route}}"),
        width=8,
    ),
    lines(
        "Gateway: what is open",
        "Requests being answered, turns without an answer, and environments that are connected.",
        "none",
        Query(f"sum({gateway('kerneldyno_gateway_open_requests')})", "requests"),
        Query(f"sum({gateway('kerneldyno_gateway_turns_in_flight')})", "turns"),
        Query(f"sum({gateway('kerneldyno_gateway_sessions')})", "environments"),
        width=8,
    ),
]

BOARD = board(
    "kerneldyno-training",
    "KernelDyno / Training",
    "A training run as its rewards see it: what it learns, whether it cheats, and what it waits for.",
    [("Now", SUMMARY), ("Rewards", REWARDS), ("Cheating", CHEATING), ("Latency", LATENCY), ("Gateway", GATEWAY)],
)
