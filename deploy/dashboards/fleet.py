"""The first dashboard: is the fleet well, how much does it do, and what waits?"""

from __future__ import annotations

from .board import Query, board, lines, number
from .colours import OUTCOMES
from .promql import mean, over, per_minute, quantile, rate, scheduler

_OUTCOMES = scheduler("kerneldyno_outcomes_total")
_BACKLOG, _LIMIT = scheduler("kerneldyno_backlog_evaluations"), scheduler("kerneldyno_backlog_evaluations_limit")
_RUNNING, _LANES = scheduler("kerneldyno_running"), scheduler("kerneldyno_lanes")
_BUILDING = scheduler("kerneldyno_building")
_OLDEST = scheduler("kerneldyno_queue_oldest_seconds")
_COMMIT = scheduler("kerneldyno_journal_commit_seconds")

NOW = [
    number(
        "Verdicts a minute",
        "Evaluations that ended, whatever their outcome, cached answers included.",
        "none",
        Query(per_minute(_OUTCOMES)),
    ),
    number(
        "Serving nodes",
        "Nodes that take work. Red without any: nothing is judged.",
        "none",
        Query(f"sum({scheduler('kerneldyno_nodes', state='serving')})"),
        steps=((None, "red"), (1, "green")),
    ),
    number(
        "Lanes in use",
        "Attempts that nodes have, except those whose native code is built, over lanes that are ready. Near 100 % while "
        "work waits, the fleet is the limit: add nodes. Low while work waits, look at the pipeline. Above it are attempts "
        "that wait on their node for the next lane.",
        "percentunit",
        Query(over(f"(sum({_RUNNING}) - sum({_BUILDING}))", f"sum({_LANES})")),
    ),
    number(
        "Queue in use",
        "Unfinished evaluations, less the attempts that run, over their limit (--max-queued). At 100 % streams wait and "
        "EvaluateOnce is refused.",
        "percentunit",
        Query(f"max({_BACKLOG} / {_LIMIT})"),
        steps=((None, "green"), (0.8, "orange"), (1, "red")),
    ),
    number(
        "Oldest waiting job",
        "Age of the oldest job that waits, of any priority.",
        "s",
        Query(f"max({_OLDEST})"),
        steps=((None, "green"), (600, "orange"), (1800, "red")),
    ),
    number(
        "Alerts that fire",
        "Alerts of this project that fire now. Prometheus' page Alerts says which; each links to what to do.",
        "none",
        Query('sum(ALERTS{alertname=~"KernelDyno.*", alertstate="firing"}) or vector(0)'),
        steps=((None, "green"), (1, "red")),
    ),
]

WORK = [
    lines(
        "Verdicts a minute, by outcome",
        "What evaluations end as. INFRASTRUCTURE_ERROR is this system's failure, or work that a client cancelled, and "
        "REFERENCE_ERROR the problem's; PROBLEM_TOO_LARGE is a problem that no device has the memory for. None of them says "
        "anything about a candidate.",
        "none",
        Query(per_minute(_OUTCOMES, "outcome"), "{{outcome}}"),
        stacked=True,
        colours=OUTCOMES,
    ),
    lines(
        "Turnaround",
        "From acceptance to the verdict, waiting included: what a client feels.",
        "s",
        *(
            Query(quantile(rank, scheduler("kerneldyno_turnaround_seconds")), f"p{rank * 100:g}")
            for rank in (0.5, 0.95, 0.99)
        ),
    ),
]

QUEUE = [
    lines(
        "Waiting jobs, by who sent them",
        "Jobs without an attempt. `recovered` are those that an earlier process of the scheduler had accepted.",
        "none",
        Query(f"sum by (client_kind) ({scheduler('kerneldyno_queue_depth')})", "{{client_kind}}"),
        stacked=True,
        width=8,
    ),
    lines(
        "Wait for an attempt, p95, by priority",
        "From acceptance to an attempt. High priority is to stay flat while the others grow.",
        "s",
        Query(quantile(0.95, scheduler("kerneldyno_queue_seconds"), "priority"), "{{priority}}"),
        width=8,
    ),
    lines(
        "Backlog and its limit",
        "Unfinished evaluations, less the attempts that run. At the limit nothing more is accepted: streams wait for room, "
        "EvaluateOnce answers RESOURCE_EXHAUSTED.",
        "none",
        Query(f"sum({_BACKLOG})", "backlog"),
        Query(f"sum({_LIMIT})", "limit"),
        Query(f"sum({scheduler('kerneldyno_waiting_calls')})", "streams that wait for room"),
        width=8,
        colours={"limit": "red"},
    ),
]

NODES = [
    lines(
        "Nodes, by state",
        "`lost` nodes stay listed for ten minutes. `quarantined` ones failed three attempts in a row and get one at a time.",
        "none",
        Query(f"sum by (state) ({scheduler('kerneldyno_nodes')})", "{{state}}"),
        stacked=True,
        colours={"serving": "green", "draining": "blue", "quarantined": "orange", "lost": "red"},
        width=8,
    ),
    lines(
        "Lanes and attempts",
        "Lanes are how many attempts can run at once; nodes also hold a few that wait for the next lane. Fewer attempts "
        "than lanes while jobs wait is work that fits no node, or a fleet that cannot be fed.",
        "none",
        Query(f"sum({_RUNNING})", "attempts on nodes"),
        Query(f"sum({_LANES})", "lanes"),
        width=8,
    ),
    lines(
        "Nodes lost and quarantines, an hour",
        "Nodes that died or fell silent, and nodes or work set aside because they kept being there when attempts were lost.",
        "none",
        Query(f"3600 * {rate(scheduler('kerneldyno_nodes_lost_total'), 'why')}", "lost: {{why}}"),
        Query(f"3600 * {rate(scheduler('kerneldyno_quarantines_total'), 'kind')}", "quarantined: {{kind}}"),
        width=8,
    ),
    lines(
        "Infrastructure errors a minute, by cause",
        "Evaluations without a verdict. CANCELLED, DEADLINE_EXCEEDED and CLIENT_GONE are the clients' doing; all others are "
        "this system's failure.",
        "none",
        Query(per_minute(scheduler("kerneldyno_infrastructure_errors_total"), "cause"), "{{cause}}"),
    ),
    lines(
        "Retries a minute, by cause",
        "Jobs put back because infrastructure lost the attempt. Clients notice nothing but the time.",
        "none",
        Query(per_minute(scheduler("kerneldyno_retries_total"), "cause"), "{{cause}}"),
    ),
]

SCHEDULER = [
    lines(
        "Journal: a group commit",
        "What the disk adds to each acceptance and each result.",
        "s",
        Query(quantile(0.5, _COMMIT), "p50"),
        Query(quantile(0.99, _COMMIT), "p99"),
        width=6,
    ),
    lines(
        "Journal: records not on disk",
        "At 20,000 nothing more is accepted. `stalled` is 1 while the journal cannot be written.",
        "none",
        Query(f"sum({scheduler('kerneldyno_journal_pending_records')})", "pending"),
        Query(f"max({scheduler('kerneldyno_journal_stalled')})", "stalled"),
        width=6,
    ),
    lines(
        "Event loop lag",
        "How late the scheduler's event loop wakes up. Above 0.1 s it is short of processor time.",
        "s",
        Query(mean(scheduler("kerneldyno_event_loop_lag_seconds")), "mean"),
        Query(quantile(0.99, scheduler("kerneldyno_event_loop_lag_seconds")), "p99"),
        width=6,
    ),
    lines(
        "Processor and calls",
        "Processors that the scheduler keeps busy: its event loop can use one. Calls that did not "
        "end with OK, a second, whoever's doing it was.",
        "none",
        Query(f"sum(rate({scheduler('process_cpu_seconds_total')}[$__rate_interval]))", "processors"),
        Query(rate(scheduler("grpc_server_handled_total", 'grpc_code!="OK"')), "failed calls a second"),
        width=6,
    ),
    lines(
        "Store: a write, and reads in the event loop",
        "The 99th percentiles. In PostgreSQL, a read of a known id or digest takes a round trip, in which the event loop "
        "does nothing else.",
        "s",
        Query(quantile(0.99, scheduler("kerneldyno_store_seconds", 'operation="write"')), "write"),
        Query(quantile(0.99, scheduler("kerneldyno_store_seconds", 'operation="find"')), "find"),
        width=12,
    ),
    lines(
        "Schedulers by role, and take-overs",
        "One must be active. Standbys exist only with a journal in PostgreSQL. An uncertain scheduler answers nobody, "
        "because another one may have taken over.",
        "none",
        Query(f"sum by (role) ({scheduler('kerneldyno_role')})", "{{role}}"),
        Query(f"max({scheduler('kerneldyno_takeovers_total')})", "take-overs so far"),
        width=12,
    ),
]

BOARD = board(
    "kerneldyno-fleet",
    "KernelDyno / Fleet",
    "Is the fleet well, how much does it do, and what waits? What to do about an alert: docs/monitoring.md.",
    [("Now", NOW), ("Work", WORK), ("Queue", QUEUE), ("Nodes", NODES), ("Scheduler", SCHEDULER)],
)
